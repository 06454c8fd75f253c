"""A training program for measurements: linear layers and Adam on one GPU. It imports nothing of Trainmaster.

    python train.py --steps 500 --hidden 1024 --fill-gib 1 --out result.json

It prints JSON lines while it runs, and one at the end: its steps, what they took, its pauses, its loss and a
digest of its weights. With `--deterministic` the same seed gives the same weights on the same GPU.
"""

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

GIB = 1 << 30
GREED_S = 0.25
GAP_S = 0.25
"""A step that took longer is a pause, and listed as one."""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000_000, help="end after so many")
    parser.add_argument("--seconds", type=float, default=1e9, help="end after so long")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--fill-gib", type=float, default=0.0, help="a resident tensor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--greedy-after", type=float, default=0.0, help="seconds; then take memory")
    parser.add_argument("--gate", type=Path, help="folder: says that it is ready, waits for `go`")
    parser.add_argument("--out", type=Path, help="the last line goes here too")
    return parser.parse_args()


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def wait_at(gate: Path | None) -> None:
    """Say that this program is ready, and wait until all may go."""
    if gate is None:
        return
    (gate / f"{os.getpid()}.ready").touch()
    while not (gate / "go").exists():
        time.sleep(0.02)


def wants_more(began: float, after_s: float, taken: int) -> bool:
    """Whether a greedy program takes another GiB now: one each quarter of a second."""
    return time.perf_counter() - began > after_s + GREED_S * taken


class StepTimes:
    """What steps took: mean, maximum, variance, and the pauses among them."""

    def __init__(self) -> None:
        self.began = self._last = self._said = time.perf_counter()
        self.steps, self._sum, self._squares, self._most = 0, 0.0, 0.0, 0.0
        self._gaps: list[tuple[float, float]] = []

    def add(self, steps: int) -> None:
        now = time.perf_counter()
        took = (now - self._last) / steps
        if took > GAP_S:
            self._gaps.append((round(now - self.began, 3), round(took, 3)))
        else:
            self._sum, self._squares = self._sum + took * steps, self._squares + took * took * steps
            self._most = max(self._most, took)
        self.steps, self._last = self.steps + steps, now
        if now - self._said >= 1.0:
            self._said = now
            say(step=self.steps, at_s=round(now - self.began, 2), at=round(time.time(), 3))

    def found(self) -> dict[str, object]:
        paced = max(1, self.steps - len(self._gaps))
        mean = self._sum / paced
        return {
            "steps": self.steps,
            "wall_s": round(self._last - self.began, 3),
            "ms_per_step": round(1000 * mean, 4),
            "max_ms": round(1000 * self._most, 4),
            "variance_ms2": round(1e6 * max(0.0, self._squares / paced - mean * mean), 6),
            "gaps": self._gaps,
        }


def main() -> None:
    asked = parsed()
    born = time.perf_counter()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    imported_s = time.perf_counter() - born
    torch.manual_seed(asked.seed)
    torch.use_deterministic_algorithms(asked.deterministic)
    device = torch.device("cuda")
    layers = [torch.nn.Linear(asked.hidden, asked.hidden) for _ in range(asked.layers)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    batch = torch.randn(asked.batch, asked.hidden).to(device)
    size = int(asked.fill_gib * GIB) // 4
    resident = torch.arange(size, device=device, dtype=torch.int32) if size else None
    hoard = []

    def resident_sum() -> int:  # piece by piece: a sum of all would need as much memory again
        pieces = [] if resident is None else resident.split(1 << 22)
        return sum(int(piece.sum(dtype=torch.int64)) for piece in pieces)

    right_sum = resident_sum()

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        loss = step()
    torch.cuda.synchronize()
    say(
        ready=os.getpid(),
        at=round(time.time(), 3),
        import_s=round(imported_s, 2),
        start_s=round(time.perf_counter() - born, 2),
        loss=loss.item(),
        gpu_bytes=torch.cuda.memory_reserved(),
    )
    wait_at(asked.gate)
    times = StepTimes()
    while times.steps < asked.steps and time.perf_counter() - times.began < asked.seconds:
        loss = step()
        torch.cuda.synchronize()
        times.add(1)
        if asked.greedy_after and wants_more(times.began, asked.greedy_after, len(hoard)):
            hoard.append(torch.zeros(GIB // 4, device=device))
    weights = hashlib.sha256()
    for each in model.state_dict().values():
        weights.update(each.detach().cpu().numpy().tobytes())
    found = times.found() | {
        "loss": loss.item(),
        "weights": weights.hexdigest(),
        "resident_is_whole": resident_sum() == right_sum,
        "gpu_bytes": torch.cuda.memory_reserved(),
    }
    say(**found)
    if asked.out:
        asked.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
