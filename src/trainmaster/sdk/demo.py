"""A small model that really learns, for `trainmaster up --demo`: an example of all that the SDK does.

A two-layer network learns to tell two spirals apart, in NumPy alone. As a gang its ranks average their
gradients over a socket at MASTER_ADDR:MASTER_PORT. It saves, obeys when it is told to stop, and goes
on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import trainmaster_sdk

POINTS, HIDDEN, RATE = 512, 32, 0.5
PATIENCE_S = 60.0


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--steps", type=int, default=300)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--pause", type=float, default=0.02, help="seconds between steps")
    given = asked.parse_args()
    with trainmaster_sdk.run() as tm:
        train(tm, given.steps, given.seed, given.pause)


def train(tm: Any, steps: int, seed: int, pause: float) -> None:
    import numpy as np

    points, labels = spirals(np, seed)
    shard = slice(tm.rank, None, tm.world_size)
    points, labels = points[shard], labels[shard]
    loaded = tm.load()
    state = loaded.state if loaded is not None else first_state(np, seed)
    peers = Peers(tm.rank, tm.world_size)
    print(f"rank {tm.rank} of {tm.world_size} begins at step {state['step']}", flush=True)  # noqa: T201
    while state["step"] < steps:
        began = time.monotonic()
        loss, gradients = gradient(np, state["weights"], points, labels)
        gradients, loss = peers.mean(np, gradients, loss)
        state["weights"] = [w - RATE * g for w, g in zip(state["weights"], gradients, strict=True)]
        state["step"] += 1
        time.sleep(pause)
        if state["step"] % 10 == 0 or state["step"] == steps:
            speed = POINTS / (time.monotonic() - began)
            tm.progress(
                step=state["step"], loss=float(loss), samples_per_s=speed, total_steps=steps
            )
            print(f"step {state['step']:4d}  loss {loss:.4f}", flush=True)  # noqa: T201
        if tm.should_save():
            tm.save(state, state["step"])
        if tm.should_stop():
            tm.save(state, state["step"])
            return
    tm.save(state, state["step"])


def spirals(np: Any, seed: int) -> tuple[Any, Any]:
    """Points of two interleaved spirals, and which of them each belongs to."""
    chance = np.random.default_rng(seed)
    angle = np.sqrt(chance.random(POINTS)) * 3 * np.pi
    side = chance.integers(0, 2, POINTS)
    radius = angle / (3 * np.pi) * np.where(side == 0, 1, -1)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points + chance.normal(0, 0.01, points.shape), side.astype(float)


def first_state(np: Any, seed: int) -> dict[str, Any]:
    chance = np.random.default_rng(seed + 1)
    shapes = [(2, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,)]
    return {"step": 0, "weights": [chance.normal(0, 1 / np.sqrt(s[0]), s) for s in shapes]}


def gradient(np: Any, weights: list[Any], points: Any, labels: Any) -> tuple[float, list[Any]]:
    """Loss of a two-layer network on these points, and its gradient."""
    w1, b1, w2, b2, w3, b3 = weights
    h1 = np.tanh(points * 5 @ w1 + b1)
    h2 = np.tanh(h1 @ w2 + b2)
    chance = 1 / (1 + np.exp(-(h2 @ w3 + b3)[:, 0]))
    wrong = np.clip(np.where(labels == 1, chance, 1 - chance), 1e-9, 1)
    out = ((chance - labels) / len(labels))[:, None]
    back2 = (out @ w3.T) * (1 - h2**2)
    back1 = (back2 @ w2.T) * (1 - h1**2)
    gradients = [
        *((points * 5).T @ back1, back1.sum(0)),
        *(h1.T @ back2, back2.sum(0)),
        *(h2.T @ out, out.sum(0)),
    ]
    return float(-np.log(wrong).mean()), gradients


class Peers:
    """Ranks of one run that average what they found: rank 0 adds up and sends the mean to the others."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._peers: list[Connection] = []
        if size > 1:
            self._meet()

    def _meet(self) -> None:
        where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self._rank == 0:
            with Listener(where, backlog=self._size) as listener:
                self._peers = [listener.accept() for _ in range(self._size - 1)]
            return
        while not self._peers:
            try:
                self._peers = [Client(where)]
            except OSError:
                time.sleep(0.05)

    def mean(self, np: Any, gradients: list[Any], loss: float) -> tuple[list[Any], float]:
        if self._size == 1:
            return gradients, loss
        flat = np.concatenate([*(g.ravel() for g in gradients), [loss]])
        if self._rank == 0:
            for peer in self._peers:
                flat += np.frombuffer(_received(peer))
            flat /= self._size
        for peer in self._peers:
            peer.send_bytes(flat.tobytes())
        if self._rank:
            flat = np.frombuffer(_received(self._peers[0]))
        cuts = np.cumsum([g.size for g in gradients])
        parts = np.split(flat, cuts)
        shaped = [p.reshape(g.shape) for p, g in zip(parts, gradients, strict=False)]
        return shaped, float(flat[-1])


def _received(peer: Connection) -> bytes:
    try:
        if peer.poll(PATIENCE_S):
            return peer.recv_bytes()
    except EOFError:
        pass
    raise ConnectionError("another rank of the gang has gone")


if __name__ == "__main__":
    main()
