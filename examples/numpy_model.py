"""A small network in NumPy that learns two spirals apart, alone or as a gang, and goes on after a stop.

    python examples/numpy_model.py --steps 300

Needs no torch. Every step's batch depends on the seed and the step only, so that a run that was
stopped and started again has the same loss curve as one that was not.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from multiprocessing.connection import Client, Connection, Listener

import flags
import numpy as np

import trainmaster_sdk

GLOBAL_BATCH = 64


def spirals(seed: int, count: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """Points of two spirals, and which of the two each is from."""
    chance = np.random.default_rng(seed)
    turn = np.sqrt(chance.random(count)) * 3 * np.pi
    kind = np.arange(count) % 2
    points = np.stack([np.cos(turn + kind * np.pi), np.sin(turn + kind * np.pi)], 1)
    points = points * turn[:, None] / 9 + chance.normal(0, 0.02, (count, 2))
    return points, kind.astype(float)[:, None]


def fresh_model(seed: int) -> list[np.ndarray]:
    """Weights and biases of 2 -> 64 -> 64 -> 1."""
    chance = np.random.default_rng(seed + 1)
    sizes = [2, 64, 64, 1]
    layers = [
        (chance.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)), np.zeros(outputs))
        for inputs, outputs in pairwise(sizes)
    ]
    return [part for layer in layers for part in layer]


def loss_and_gradients(
    model: list[np.ndarray], x: np.ndarray, y: np.ndarray
) -> tuple[float, list[np.ndarray]]:
    """Summed logistic loss of a batch, and its gradient for every part of the model."""
    w1, b1, w2, b2, w3, b3 = model
    h1 = np.maximum(x @ w1 + b1, 0)
    h2 = np.maximum(h1 @ w2 + b2, 0)
    logit = h2 @ w3 + b3
    loss = float(np.sum(np.logaddexp(0, logit) - y * logit))
    d3 = 1 / (1 + np.exp(-logit)) - y
    d2 = (d3 @ w3.T) * (h2 > 0)
    d1 = (d2 @ w2.T) * (h1 > 0)
    return loss, [x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0)]


class Gang:
    """Sums gradients over the ranks of a gang: rank 0 collects them, and hands the sum back."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._others: list[Connection] = []
        if world_size == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            with Listener(address, backlog=world_size) as door:
                arrived = [door.accept() for _ in range(world_size - 1)]
            # Always in the order of ranks: sums of floats depend on it.
            self._others = [line for _, line in sorted((line.recv(), line) for line in arrived)]
        else:
            self._others = [connect(address)]
            self._others[0].send(rank)
        self._rank = rank

    def sum(self, loss: float, gradients: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        if not self._others:
            return loss, gradients
        if self._rank > 0:
            self._others[0].send((loss, gradients))
            return self._others[0].recv()
        for other in self._others:
            more, theirs = other.recv()
            loss += more
            gradients = [mine + its for mine, its in zip(gradients, theirs, strict=True)]
        for other in self._others:
            other.send((loss, gradients))
        return loss, gradients


def connect(address: tuple[str, int]) -> Connection:
    """Rank 0 may not be up yet."""
    for _ in range(600):
        try:
            return Client(address)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise SystemExit("rank 0 did not come up within a minute")


def main() -> None:
    asked = flags.parsed(__doc__, steps=300, save_every=100)

    with trainmaster_sdk.run() as tm:
        points, kinds = spirals(asked.seed)
        model = fresh_model(asked.seed)
        speed = [np.zeros_like(part) for part in model]
        first = 0
        if found := tm.load():
            model, speed = found.state
            first = found.step
            print(f"going on from step {first}", flush=True)
        gang = Gang(tm.rank, tm.world_size)
        part = tm.batch_part(GLOBAL_BATCH)  # whatever the number of ranks, they sum up

        for step in range(first + 1, asked.steps + 1):
            began = time.perf_counter()
            batch = np.random.default_rng([asked.seed, step]).choice(len(points), GLOBAL_BATCH)[
                part
            ]
            loss, gradients = gang.sum(*loss_and_gradients(model, points[batch], kinds[batch]))
            loss /= GLOBAL_BATCH
            for weights, velocity, gradient in zip(model, speed, gradients, strict=True):
                velocity *= 0.9
                velocity -= 0.1 * gradient / GLOBAL_BATCH
                weights += velocity
            time.sleep(asked.sleep)
            if tm.is_rank_zero:
                print(f"step {step} loss {loss!r}", flush=True)

            rate = GLOBAL_BATCH / (time.perf_counter() - began)
            tm.progress(step=step, loss=loss, samples_per_s=rate, total_steps=asked.steps)
            must_stop = tm.should_stop()
            is_due = step % asked.save_every == 0 or step == asked.steps
            if must_stop or tm.should_save() or is_due:
                tm.save((model, speed), step)
            if must_stop:
                break


if __name__ == "__main__":
    main()
