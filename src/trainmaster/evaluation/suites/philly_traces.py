"""Real jobs of Philly: the first 1,000 of October 2017, and each virtual cluster by itself.

The files are not part of the package; workloads whose file is missing are left out and named.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trainmaster.evaluation.suite import TraceFile, TraceSubset, Workload, WorkloadChanges

AS_THEY_ARE = WorkloadChanges()


def philly_1k(changes: WorkloadChanges = AS_THEY_ARE) -> Workload:
    """A transient overload: what arrives in a day keeps the cluster busy for two."""
    return Workload(
        "philly1k",
        TraceFile("philly/philly1k_job.csv", "tiresias", changes=changes),
        "32x4",
        title="the first 1,000 jobs of Philly from October 2017",
    )


PHILLY_1K = philly_1k()

PHILLY_82K = "philly/philly-82k.csv"
MOST_JOBS = 2_000


class Split(Enum):
    """Whether a trace was used to choose our defaults, or only to judge them."""

    TUNE = "tune"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class VirtualCluster:
    """Jobs of one of Philly's virtual clusters, on few enough GPUs that queues form."""

    name: str
    cluster: str
    split: Split
    last: int | None = None
    """Virtual clusters with more than 2,000 jobs: number of the last of the 2,000 consecutive jobs used."""

    def workload(self, changes: WorkloadChanges = AS_THEY_ARE) -> Workload:
        part = TraceSubset(queue=self.name)
        if self.last is not None:
            part = TraceSubset(queue=self.name, first=self.last, last=MOST_JOBS)
        return Workload(
            f"vc {self.name} ({self.split.value})",
            TraceFile(PHILLY_82K, "philly-82k", part, changes),
            self.cluster,
            title=f"Philly's virtual cluster {self.name} on {self.cluster}, {self.split.value}",
        )


VIRTUAL_CLUSTERS = (
    VirtualCluster("103959", "7x4", Split.TUNE),
    VirtualCluster("11cb48", "3x8", Split.TUNE, last=10_045),
    VirtualCluster("2869ce", "6x8", Split.TUNE),
    VirtualCluster("ed69ec", "7x1", Split.TUNE),
    VirtualCluster("0e4a51", "13x4", Split.TEST),
    VirtualCluster("6214e9", "4x8", Split.TEST, last=32_919),
    VirtualCluster("6c71a0", "6x8", Split.TEST, last=4_488),
    VirtualCluster("7f04ca", "11x8", Split.TEST),
    VirtualCluster("b436b2", "16x8", Split.TEST, last=2_000),
    VirtualCluster("e13805", "4x8", Split.TEST),
    VirtualCluster("ee9e8c", "19x8", Split.TEST),
)
"""All that have more than eight jobs. Loads 0.7 to 1.0, but e13805, whose largest job needs a cluster on
which nothing queues."""


def virtual_clusters(*names: str, changes: WorkloadChanges = AS_THEY_ARE) -> tuple[Workload, ...]:
    """Some of them, with what the trace does not say of their jobs."""
    return tuple(each.workload(changes) for each in VIRTUAL_CLUSTERS if each.name in names)
