"""Steps of real data-parallel trainings by gloo on 1, 2, 4 and 8 ranks of one machine, and its all-reduces.

Every rank has two cores and two threads of its own, and its own samples, so that more ranks do not change
what one computes. It needs torch and nothing of ours; gloo_predictions.py predicts what it measured.

    python benchmarks/gloo_speed.py [--ranks 1,2,4,8] [--seconds 4] --out gloo.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

CORES = 2
"""Of each rank."""
WARM_STEPS = 3
FEWEST_STEPS = 5
SIZES = (4_096, 262_144, 4_194_304, 26_214_400)
"""Bytes of the all-reduces: the last is a bucket of DDP."""
RANK_LIMIT_S = 280


def mlp(torch: Any) -> tuple[Any, Any]:
    """Much to exchange for what it computes: 12.6 million parameters, 16 samples."""
    nn = torch.nn
    layers = [each for _ in range(3) for each in (nn.Linear(2048, 2048), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(16, 2048)


def wide_batch_mlp(torch: Any) -> tuple[Any, Any]:
    """The same with 256 samples: sixteen times the computing."""
    model, _ = mlp(torch)
    return model, torch.randn(256, 2048)


def convolutions(torch: Any) -> tuple[Any, Any]:
    """Little to exchange: 0.2 million parameters, 32 images."""
    nn = torch.nn
    widths = (3, 32, 64, 128)
    layers: list[Any] = []
    for fewer, more in pairwise(widths):
        layers += [nn.Conv2d(fewer, more, 3, padding=1), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1024)]
    return nn.Sequential(*layers), torch.randn(32, 3, 32, 32)


def transformer(torch: Any) -> tuple[Any, Any]:
    """In between: 12.6 million parameters, 8 sequences of 64."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(8, 64, 512)


MODELS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "mlp, 16 samples": mlp,
    "mlp, 256 samples": wide_batch_mlp,
    "convolutions": convolutions,
    "transformer": transformer,
}


def measure_rank(rank: int, ranks: int, folder: Path, seconds: float) -> None:
    """One rank, from the first all-reduce to the last model; rank 0 writes what it measured."""
    cores = sorted(os.sched_getaffinity(0))
    mine = {cores[(rank * CORES + each) % len(cores)] for each in range(CORES)}
    os.sched_setaffinity(0, mine)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(CORES)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks
    )
    found = {
        "all_reduce_s": {str(size): _all_reduce_s(torch, size) for size in SIZES if ranks > 1},
        "models": {name: _training(torch, make, seconds) for name, make in MODELS.items()},
    }
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _all_reduce_s(torch: Any, size: int) -> float:
    """The median of fifteen."""
    data, spans = torch.zeros(size // 4), []
    for _ in range(18):
        torch.distributed.barrier()
        began = time.perf_counter()
        torch.distributed.all_reduce(data)
        spans.append(time.perf_counter() - began)
    return statistics.median(spans[3:])


def _training(torch: Any, make: Callable[[Any], tuple[Any, Any]], seconds: float) -> dict[str, Any]:
    torch.manual_seed(0)
    model, samples = make(torch)
    is_alone = torch.distributed.get_world_size() == 1
    trained = model if is_alone else torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        trained(samples).square().mean().backward()
        optimizer.step()
        return time.perf_counter() - began

    for _ in range(WARM_STEPS):
        step()
    # All ranks make the same number of steps: that of rank 0.
    count = torch.tensor([max(FEWEST_STEPS, int(seconds / min(step(), step())))])
    torch.distributed.broadcast(count, 0)
    cpu, spans = time.process_time(), [step() for _ in range(int(count))]
    return {
        "steps": len(spans),
        "step_s": statistics.median(spans),
        "quartiles_s": statistics.quantiles(spans, n=4),
        "cpu_s": (time.process_time() - cpu) / len(spans),
        "batch": len(samples),
        "parameter_bytes": sum(each.numel() * each.element_size() for each in model.parameters()),
    }


def measure(ranks: int, seconds: float) -> dict[str, Any]:
    """So many ranks; all of them have ended when this does."""
    with tempfile.TemporaryDirectory(prefix="gloo-speed-") as name:
        command = [sys.executable, __file__, "--folder", name, "--ranks", str(ranks)]
        env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": str(CORES)}
        running = [
            subprocess.Popen([*command, "--seconds", str(seconds), "--rank", str(rank)], env=env)
            for rank in range(ranks)
        ]
        try:
            until = time.monotonic() + RANK_LIMIT_S
            codes = [each.wait(max(0.1, until - time.monotonic())) for each in running]
        finally:
            for each in running:
                each.kill()
                each.wait()
        if any(codes):
            raise SystemExit(f"{ranks} ranks: a rank failed, exit codes {codes}.")
        found: dict[str, Any] = json.loads((Path(name) / "found.json").read_text())
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each training")
    parser.add_argument("--out", type=Path, default=Path("gloo.json"))
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        measure_rank(options.rank, int(options.ranks), options.folder, options.seconds)
        return
    from importlib.metadata import version

    began = time.monotonic()
    counts = [int(each) for each in options.ranks.split(",")]
    found = {
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": version("torch"),
        "by_ranks": {str(ranks): measure(ranks, options.seconds) for ranks in counts},
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    print(f"Written to {options.out} in {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
