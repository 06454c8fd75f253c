"""Who takes part: the published baselines, our own policy, its parts switched off, and the bounds."""

from __future__ import annotations

from trainmaster.evaluation.suite import Contender, Settings, Standing

LEAST_RUN_S = "600"
"""LAS and AFS-L let whom they have chosen run for so long. By their defaults they compare at every event:
where switching costs 30 s they do little else. On philly1k LAS's excess was 78,000 s and is 12,000 so
(9,700 and 9,600 where switching is free), and AFS-L without run times got nothing done at all."""

THRESHOLDS = (
    "3250,7200,18000",
    "3600",
    "57600",
    "600,3600,21600,129600",
    "3600,36000,360000",
    "60,240,960,3840,15360,61440,245760,983040",
)
"""Limits that Tiresias is tuned over, in GPU-seconds: the released ones, those of others who ran it as a
baseline (one hour, 16 GPU-hours), and series that grow by 6, 10 and 4."""

TUNED: tuple[Settings, ...] = tuple({"thresholds_gpu_s": limits} for limits in THRESHOLDS)

OURS = Contender("trainmaster", "trainmaster", standing=Standing.OURS)

FIFO = Contender("fifo", "fifo")
EASY = Contender("fifo easy", "fifo", {"backfill": "easy"})
SKIP = Contender("fifo skip", "fifo", {"backfill": "skip"})
YARN = Contender("yarn-cs", "yarn-cs")
LAS = Contender("las", "las", {"quantum_s": LEAST_RUN_S, "min_run_s": LEAST_RUN_S})
TIRESIAS_L = Contender("tiresias-l", "tiresias-l")
TIRESIAS_L_TUNED = Contender("tiresias-l tuned", "tiresias-l", grid=TUNED)
TIRESIAS_G = Contender("tiresias-g", "tiresias-g")
TIRESIAS_G_TUNED = Contender("tiresias-g tuned", "tiresias-g", grid=TUNED)
GITTINS = Contender("gittins global", "gittins", {"classes": "all"})
GITTINS_BY_CLASS = Contender("gittins by class", "gittins", {"classes": "user"})
QSSF = Contender("qssf", "qssf")
MAX_MIN = Contender("max-min", "max-min")
AFS_L = Contender("afs-l", "afs-l", {"min_run_s": LEAST_RUN_S})
GOODPUT = Contender("goodput", "goodput")
OPTIMUS = Contender("optimus", "optimus")
THEMIS = Contender("themis", "themis")
GANDIVA = Contender("gandiva", "gandiva")
ANTMAN = Contender("antman", "antman")
BIG_BRAIN = Contender("big-brain", "big-brain")
PHILLY = Contender("philly", "philly")
FAIR = Contender("fair", "fair")

SRSF = Contender("srsf", "srsf", standing=Standing.BOUND)
SRTF = Contender("srtf", "srtf", standing=Standing.BOUND)

ORDERING = (
    *(OURS, FIFO, EASY, LAS, TIRESIAS_L, TIRESIAS_L_TUNED, TIRESIAS_G, TIRESIAS_G_TUNED),
    *(GITTINS, GITTINS_BY_CLASS, QSSF, SRSF),
)
"""Everybody whose subject is who runs first."""
BEST_ORDERING = (OURS, LAS, TIRESIAS_L_TUNED, TIRESIAS_G, GITTINS_BY_CLASS, QSSF, SRSF)
"""Those that are near each other: what a sweep follows."""


def altered(label: str, option: str, value: str) -> Contender:
    """Ours with one option set otherwise."""
    return Contender(label, "trainmaster", {option: value}, standing=Standing.ABLATION)
