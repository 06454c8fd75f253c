"""Published statistics of Philly's workload (ATC'19 and its released trace), as tables to draw from.

Read off the paper's tables and the notebook of the released trace: `docs/traces.md` gives the sources.
Points of a curve are (minutes, part of the jobs or trials that are done by then).
"""

from __future__ import annotations

from typing import NamedTuple

Quantiles = tuple[tuple[float, float], ...]

SHORTEST_MIN = 1 / 6
"""Where every curve starts: ten seconds. The published ones start at 0.5 to 2 minutes."""
LONGEST_MIN = 28_800.0
"""Where every curve ends: twenty days. Of philly-82k's jobs on several GPUs 0.3 % run longer."""

SIZE_MIX = ((1, 68.7), (2, 3.0), (4, 13.4), (8, 12.6), (16, 1.7), (32, 0.6))
"""GPUs and percent of jobs in Gavel's Philly-derived traces (15 virtual clusters, 15,264 jobs)."""

ONE_GPU: Quantiles = (
    *((2, 0.25), (5, 0.32), (10, 0.40), (20, 0.50), (50, 0.72), (100, 0.82)),
    *((200, 0.88), (500, 0.94), (1000, 0.96), (10_000, 0.99)),
)
TWO_TO_FOUR: Quantiles = (
    *((0.5, 0.18), (1, 0.23), (2, 0.28), (5, 0.33), (10, 0.38), (20, 0.47), (50, 0.53)),
    *((100, 0.57), (200, 0.59), (500, 0.69), (1000, 0.75), (2000, 0.84), (5000, 0.94)),
    (9000, 0.97),
)
FIVE_TO_EIGHT: Quantiles = (
    *((1, 0.08), (2, 0.12), (5, 0.17), (10, 0.22), (20, 0.29), (50, 0.37), (100, 0.43)),
    *((200, 0.50), (500, 0.61), (2000, 0.76), (5000, 0.88), (9000, 0.94)),
)
MORE: Quantiles = (
    *((1, 0.12), (2, 0.16), (5, 0.21), (10, 0.26), (20, 0.33), (50, 0.42), (100, 0.47)),
    *((200, 0.52), (500, 0.66), (5000, 0.94), (9000, 0.97)),
)


def run_time_curve(gpus: int) -> Quantiles:
    """Run times of jobs of that size: the released trace's CDF by size class."""
    if gpus <= 1:
        return ONE_GPU
    if gpus <= 4:
        return TWO_TO_FOUR
    return FIVE_TO_EIGHT if gpus <= 8 else MORE


PASSED, KILLED, UNSUCCESSFUL = 0.693, 0.135, 0.172
"""Parts of 96,260 jobs by how they ended; of the GPU time they have 0.4453, 0.3769 and 0.1776."""

TRIALS_PER_UNSUCCESSFUL_JOB = 2.26
"""39,776 failed trials over 17,581 job occurrences; the last of them is the job's own run."""


class FailureReason(NamedTuple):
    """One reason for failures: minutes to failure at three percentiles, trials by size of the job."""

    reason: str
    p50: float
    p90: float
    p95: float
    trials_1: int
    trials_2_to_4: int
    trials_more: int
    category: str
    """IF infrastructure, AE AI engine, U user; several with commas between."""
    jobs: int
    users: int
    run_percent: float
    """Of the run time to failure of all failed trials."""
    gpu_percent: float
    """Of run time to failure x GPUs."""

    @property
    def key(self) -> str:
        """The same reason in Trainmaster's own table (docs/failures.md)."""
        return OUR_KEYS[self.reason]

    @property
    def is_deterministic(self) -> bool:
        """Whether another attempt of the same program fails again, by what the reason means."""
        return self.reason not in TRANSIENT

    @property
    def in_all(self) -> int:
        return self.trials_1 + self.trials_2_to_4 + self.trials_more

    def trials(self, gpus: int) -> int:
        if gpus <= 1:
            return self.trials_1
        return self.trials_2_to_4 if gpus <= 4 else self.trials_more

    def curve(self) -> Quantiles:
        """The published percentiles; above them on at the same slope, below them their mirror image.

        The next 5 points take as many times as the last 5 did, and the shorter half is as far from
        the median in log time as the longer half, but not below ten seconds.
        """
        longest = min(LONGEST_MIN, self.p95 * self.p95 / self.p90)
        upper = ((self.p50, 0.50), (self.p90, 0.90), (self.p95, 0.95), (longest, 1.0))
        shortest = min(SHORTEST_MIN, self.p50)
        lower = ((max(shortest, self.p50 * self.p50 / t), 1 - part) for t, part in upper[1:])
        return (*reversed(tuple(lower)), *upper)


# fmt: off
FAILURES = tuple(
    FailureReason(*row)
    for row in (
        ("CPU out of memory", 13.45, 17.73, 33.97, 11465, 235, 376, "AE,U", 2803, 65, 6.62, 8.05),
        ("incorrect inputs", 1.87, 404.83, 2095.73, 5844, 2638, 1208, "IF,U", 4936, 208, 30.43, 24.21),
        ("semantic error", 2.72, 376.00, 1436.88, 1603, 494, 846, "IF,U", 2049, 159, 9.22, 17.06),
        ("core dump", 0.85, 72.75, 431.65, 1936, 496, 480, "AE,U", 1784, 122, 3.35, 3.02),
        ("invalid mem access", 1.03, 403.50, 1357.38, 712, 774, 1116, "U", 1235, 108, 3.82, 4.75),
        ("model ckpt error", 181.67, 3728.93, 8196.02, 743, 384, 868, "IF", 948, 85, 21.73, 16.33),
        ("CUDA failure", 1.32, 19.87, 82.17, 133, 1153, 198, "AE", 571, 70, 0.62, 0.72),
        ("syntax error", 0.58, 5.02, 12.00, 780, 184, 168, "IF,U", 883, 110, 0.19, 0.26),
        ("traceback from crash", 1.02, 894.33, 1394.07, 356, 277, 144, "IF,AE,U", 271, 44, 2.34, 1.74),
        ("MPI error", 1.62, 3015.27, 5143.98, 456, 54, 124, "IF", 166, 28, 3.70, 1.24),
        ("GPU out of memory", 18.53, 353.62, 2740.28, 237, 70, 180, "AE", 261, 35, 1.08, 2.10),
        ("MPI runtime failure", 1389.48, 13778.60, 18090.88, 240, 141, 97, "IF", 420, 96, 14.63, 15.34),
        ("permission error", 1.00, 8.15, 15.85, 56, 202, 41, "U", 151, 37, 0.07, 0.03),
        ("import error", 0.67, 4.58, 10.73, 108, 30, 10, "IF,U", 148, 41, 0.06, 0.02),
        ("job preempted", 559.08, 2682.85, 5892.23, 25, 95, 27, "IF", 95, 34, 1.66, 4.73),
        ("CUDA init failed", 1.08, 2.18, 4.63, 16, 66, 59, "AE", 69, 20, 0.03, 0.13),
        ("model diverged", 1.48, 44.37, 76.53, 78, 5, 1, "U", 30, 5, 0.01, 0.01),
        ("CUDA ver. mismatch", 0.83, 1.65, 1.67, 1, 1, 47, "AE", 49, 19, 0.00, 0.00),
        ("GPU ECC error", 26.82, 671.92, 2035.02, 1, 5, 4, "AE", 10, 2, 0.03, 0.05),
        ("output node error", 0.85, 0.95, 0.95, 3, 0, 0, "U", 3, 1, 0.00, 0.00),
        ("cannot load libs", 0.12, 0.12, 0.12, 1, 0, 0, "AE", 1, 1, 0.00, 0.00),
        ("no signature", 1.87, 28.00, 95.17, 1235, 294, 155, "", 698, 94, 0.42, 0.21),
    )
)
# fmt: on

OUR_KEYS = {
    "CPU out of memory": "host-out-of-memory",
    "incorrect inputs": "incorrect-input",
    "semantic error": "semantic-error",
    "core dump": "core-dump",
    "invalid mem access": "illegal-memory-access",
    "model ckpt error": "checkpoint-error",
    "CUDA failure": "cuda-error",
    "syntax error": "syntax-error",
    "traceback from crash": "traceback-from-crash",
    "MPI error": "mpi-error",
    "GPU out of memory": "cuda-out-of-memory",
    "MPI runtime failure": "mpi-runtime-failure",
    "permission error": "permission-error",
    "import error": "import-error",
    "job preempted": "job-preempted",
    "CUDA init failed": "cuda-init-failed",
    "model diverged": "model-diverged",
    "CUDA ver. mismatch": "cuda-version-mismatch",
    "GPU ECC error": "gpu-ecc-error",
    "output node error": "output-node-error",
    "cannot load libs": "library-not-loaded",
    "no signature": "unknown",
}
TRANSIENT = frozenset(
    (
        *("model ckpt error", "CUDA failure", "traceback from crash", "MPI error"),
        *("MPI runtime failure", "job preempted", "CUDA init failed", "GPU ECC error"),
        *("no signature"),
    )
)

MODELS = (
    *("vgg19", "vgg16", "vgg11", "alexnet", "resnet152", "resnet101", "resnet50"),
    *("inception4", "inception3", "googlenet"),
)
"""The models of Tiresias' simulator, so that the skew of their tensors is known."""
