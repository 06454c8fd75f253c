"""The suite that results are published from: four tracks, sweeps, papers' experiments, ablations."""

from __future__ import annotations

from trainmaster.evaluation.suite import Suite
from trainmaster.evaluation.suites.ablations import ABLATIONS
from trainmaster.evaluation.suites.papers import PAPERS
from trainmaster.evaluation.suites.sweeps import SWEEPS
from trainmaster.evaluation.suites.tracks import ELASTIC, ORDER, PACKING, PLACEMENT

SUITE = Suite(
    name="published",
    title="Scheduling policies for deep-learning clusters, compared",
    experiments=(*ORDER, *PLACEMENT, *PACKING, *ELASTIC, *SWEEPS, *PAPERS, *ABLATIONS),
)
