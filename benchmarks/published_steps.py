"""Published step times, each with the profile known before it was measured.

AdaptDL's (Pollux, OSDI'21), ElasticFlow's (ASPLOS'23) and Gavel's (OSDI'20) published tables.
"""

from __future__ import annotations

import csv
import json
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainmaster.estimators.allocation import Allocation
from trainmaster.estimators.interconnect import Links
from trainmaster.estimators.step_time import timeline
from trainmaster.model.profile import Profile

MILLION = 1_000_000
PARAMETERS = {
    # ResNet-50, VGG-16 and Inception-v3 as in torchvision's model table.
    "resnet50": 25.6 * MILLION,
    "imagenet": 25.6 * MILLION,
    "vgg16": 138.4 * MILLION,
    "inception3": 27.2 * MILLION,
    # ResNet-18 for CIFAR-10 (kuangliu/pytorch-cifar).
    "cifar10": 11.2 * MILLION,
    "resnet18": 11.2 * MILLION,
    # ResNet-50 with ten classes.
    "resnet50_cifar10": 23.5 * MILLION,
    # BERT-base (Devlin et al.) and GPT-2 small (Radford et al.).
    "bert": 110 * MILLION,
    "gpt2": 124 * MILLION,
    # YOLOv3 with Darknet-53 (Redmon and Farhadi).
    "yolov3": 62 * MILLION,
    # Five bidirectional GRU layers of 800 on 1312 inputs: adaptdl's benchmark/models/deepspeech2.
    "deepspeech2": 41 * MILLION,
    # NeuMF, 32 factors, 3 layers, MovieLens-1M: adaptdl's benchmark/models/ncf.
    "ncf": 1.6 * MILLION,
    # attention-is-all-you-need-pytorch: base model, vocabulary of Multi30k.
    "transformer": 47 * MILLION,
    # PyTorch's word_language_model by default: 200 units, 33,278 words of Wikitext-2.
    "lm": 14 * MILLION,
}
BYTES = {model: round(4 * count) for model, count in PARAMETERS.items()}
"""Gradients are exchanged in 32 bits."""


@dataclass(frozen=True)
class Point:
    """One measured step, and the profile known before."""

    model: str
    allocation: Allocation
    profile: Profile
    alone_ns: float
    """The step that every GPU would make if the others were not there (linear scaling)."""
    step_ns: float

    def predicted(self, links: Links) -> float:
        return timeline(self.profile, self.allocation, links).step_ns()


@dataclass(frozen=True)
class Testbed:
    """A cluster on which others measured."""

    name: str
    wires: str
    teacher: str
    """The model whose points the links are fitted on."""
    points: tuple[Point, ...]

    def models(self) -> list[str]:
        return sorted({point.model for point in self.points})

    def of(self, model: str) -> list[Point]:
        return [point for point in self.points if point.model == model]


def adaptdl(folder: Path) -> Testbed:
    """Step times by placement and samples per GPU; the profile is one GPU at the same number."""
    points: list[Point] = []
    for path in sorted(folder.glob("*/placements.csv")):
        model = path.parent.name
        rows = [
            (row["placement"], int(row["local_bsz"]), float(row["step_time"])) for row in read(path)
        ]
        alone = {local: step for placement, local, step in rows if placement == "1"}
        for placement, local, step in rows:
            nodes = [int(digit) for digit in placement]
            if sum(nodes) > 1 and local in alone:
                points.append(weak(model, Allocation.plain(*nodes), local, alone[local], step))
        wide = path.parent / "scalability.csv"
        for row in read(wide):
            nodes, count = int(row["num_nodes"]), int(row["num_replicas"])
            local = int(row["local_bsz"])
            if local in alone:
                spread = [count // nodes + (i < count % nodes) for i in range(nodes)]
                allocation = Allocation.plain(*spread)
                points.append(weak(model, allocation, local, alone[local], float(row["step_time"])))
    wires = "Nodes of 4 T4 on PCIe (g4dn.12xlarge), 50 Gb/s network, by the paper"
    return Testbed("AdaptDL, T4", wires, "imagenet", tuple(points))


def elasticflow(folder: Path, kind: str, per_node: int, teacher: str, wires: str) -> Testbed:
    """Steps/s at a fixed global batch; the profile is one GPU, at two batches where there are two."""
    points: list[Point] = []
    for path in sorted((folder / f"throughputs_{kind}").glob("*.csv")):
        model = path.stem
        rows = list(read(path))
        alone = {int(row["global_batch_size"]): 1 / float(row["1"]) for row in rows}
        fixed = fixed_part(alone)
        for row in rows:
            batch = int(row["global_batch_size"])
            for column, text in row.items():
                speed = float(text or 0)
                if column in ("global_batch_size", "1") or not speed > 0:
                    continue
                count = int(column)
                nodes = [per_node] * (count // per_node) or [count]
                profile = Profile(
                    round(alone[batch] * MILLION), batch, BYTES[model], (),
                    None if fixed is None else round(min(fixed, alone[batch]) * MILLION),
                )  # fmt: skip
                share = alone[batch] * 1e9 / count
                points.append(Point(model, Allocation.plain(*nodes), profile, share, 1e9 / speed))
    return Testbed(f"ElasticFlow, {kind}", wires, teacher, tuple(points))


def gavel(folder: Path, kind: str) -> Testbed:
    """Steps/s summed over GPUs, with and without consolidation (taken as one GPU per node)."""
    tables = json.loads((folder / "simulation_throughputs.json").read_text())
    points: list[Point] = []
    for table, is_spread in ((kind, False), (f"{kind}_unconsolidated", True)):
        speeds = {literal_eval(key): row["null"] for key, row in tables[table].items()}
        for (name, count), speed in sorted(speeds.items()):
            title, _, rest = name.partition(" (batch size ")
            if count == 1 or not speed or not rest:
                continue
            local, one = int(rest.rstrip(")")), speeds[name, 1]
            allocation = Allocation.plain(*([1] * count if is_spread else [count]))
            model = title.lower().replace("-", "")
            points.append(weak(model, allocation, local, 1 / one, count / speed))
    return Testbed(
        f"Gavel, {kind.upper()}",
        "Machines of a public cloud, not stated; without consolidation taken as one GPU per node",
        "transformer",
        tuple(points),
    )


def weak(model: str, allocation: Allocation, local: int, alone_s: float, step_s: float) -> Point:
    """Every GPU keeps its samples: the whole batch grows with the GPUs."""
    count = allocation.count
    profile = Profile(
        step_us=round(alone_s * MILLION * count),
        batch=local * count,
        sync_bytes=BYTES[model],
        fixed_us=0,
    )
    return Point(model, allocation, profile, alone_s * 1e9, step_s * 1e9)


def fixed_part(alone: dict[int, float]) -> float | None:
    """What a step costs whatever its batch: the line through the two smallest batches, at zero."""
    if len(alone) < 2:
        return None
    (few, short), (many, long) = sorted(alone.items())[:2]
    return max(0.0, short - few * (long - short) / (many - few))


def read(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as lines:
        yield from csv.DictReader(lines)


def testbeds(data: Path) -> list[Testbed]:
    folder = data / "elasticflow-scaling"
    a100 = "Nodes of 8 A100 (NVLink), 8 x 200 Gb/s InfiniBand each, by the paper"
    t4 = "Machines not stated; taken as 4 T4 per node, as the models are AdaptDL's"
    return [
        adaptdl(data / "adaptdl"),
        elasticflow(folder, "A100", 8, "resnet50", a100),
        elasticflow(folder, "T4", 4, "imagenet", t4),
        *(gavel(data / "gavel", kind) for kind in ("k80", "p100", "v100")),
    ]
