"""The contenders: published baselines, our own policy and its ablations, and the bounds."""

from __future__ import annotations

from trainmaster.evaluation.suite import Contender, ContenderRole, PolicySettings

LEAST_RUN_S = "600"
"""LAS and AFS-L let a chosen job run for this long, where switching is free as where it costs: then
they compare at every event, which gains nothing (on philly1k LAS's excess is 9,700 s so, and 9,600 s)
and makes twice as many switches to simulate."""

THRESHOLDS = (
    "3250,7200,18000",
    "3600",
    "57600",
    "600,3600,21600,129600",
    "3600,36000,360000",
    "60,240,960,3840,15360,61440,245760,983040",
)
"""Limits that Tiresias is tuned over, in GPU-seconds: the released ones, those used where it was a
baseline (one hour, 16 GPU-hours), and series that grow by 6, 10 and 4."""

TUNED: tuple[PolicySettings, ...] = tuple({"thresholds_gpu_s": limits} for limits in THRESHOLDS)

CONTENDERS = {
    each.label: each
    for each in (
        Contender("trainmaster", "trainmaster", role=ContenderRole.OURS),
        Contender("fifo", "fifo"),
        Contender("fifo easy", "fifo", {"backfill": "easy"}),
        Contender("fifo skip", "fifo", {"backfill": "skip"}),
        Contender("yarn-cs", "yarn-cs"),
        Contender("las", "las", {"quantum_s": LEAST_RUN_S, "min_run_s": LEAST_RUN_S}),
        Contender("tiresias-l", "tiresias-l"),
        Contender("tiresias-l tuned", "tiresias-l", grid=TUNED),
        Contender("tiresias-g", "tiresias-g"),
        Contender("tiresias-g tuned", "tiresias-g", grid=TUNED),
        Contender("gittins global", "gittins", {"classes": "all"}),
        Contender("gittins by class", "gittins", {"classes": "user"}),
        Contender("qssf", "qssf"),
        Contender("max-min", "max-min"),
        Contender("afs-l", "afs-l", {"min_run_s": LEAST_RUN_S}),
        Contender("goodput", "goodput"),
        Contender("optimus", "optimus"),
        Contender("themis", "themis"),
        Contender("gandiva", "gandiva"),
        Contender("antman", "antman"),
        Contender("big-brain", "big-brain"),
        Contender("philly", "philly"),
        Contender("fair", "fair"),
        Contender("srsf", "srsf", role=ContenderRole.BOUND),
        Contender("srtf", "srtf", role=ContenderRole.BOUND),
    )
}


def named(labels: str) -> tuple[Contender, ...]:
    """The contenders with these labels, in this order."""
    return tuple(CONTENDERS[label] for label in labels.split(", "))


OURS, LAS = named("trainmaster, las")
ORDERING = named(
    "trainmaster, fifo, fifo easy, las, tiresias-l, tiresias-l tuned, tiresias-g, tiresias-g tuned,"
    " gittins global, gittins by class, qssf, srsf"
)
"""Contenders that differ in the order of jobs."""
BEST_ORDERING = named(
    "trainmaster, las, tiresias-l tuned, tiresias-g, gittins by class, qssf, srsf"
)
"""Contenders with similar results, which sweeps follow."""


def altered(label: str, option: str, value: str) -> Contender:
    """Ours with one option set otherwise."""
    return Contender(label, "trainmaster", {option: value}, role=ContenderRole.ABLATION)
