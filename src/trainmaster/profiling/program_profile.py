"""Profiles an unmodified training program on one device: the time of its steps, and what they exchange.

One copy of it runs for a while, as in engines/packing_experiment.py, and is ended. The hooks of the path
entry write down its steps, the bytes of its parameters, the examples of a step and what else its first steps
show.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from trainmaster.engines.packing_experiment import Experiment, ExperimentError
from trainmaster.model.profile import Profile

FEWEST_STEPS = 10


def profile_program(experiment: Experiment, say: Callable[[str], None]) -> Profile:
    """Of one copy; ExperimentError where it fails, ends early or makes too few steps."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-profile-") as name:
        folder = Path(name)
        env = {"CUDA_VISIBLE_DEVICES": experiment.device} if experiment.device else {}
        with experiment.running(1, folder, env) as [copy]:
            began = experiment.wait_warm([copy], say)
            experiment.wait_measured([copy], began + experiment.seconds, say)
            times, said = copy.times(), copy.profile()
    inside = [at for at in times if began <= at <= began + experiment.seconds]
    if len(inside) < FEWEST_STEPS:
        raise ExperimentError(
            f"it made {len(inside)} steps in {experiment.seconds:g} s, and {FEWEST_STEPS} are needed:"
            " measure for longer"
        )
    step_s = statistics.median(later - at for at, later in pairwise(inside))
    return Profile(
        step_us=max(1, round(step_s * 1e6)),
        batch=said.get("batch", 0),
        sync_bytes=said.get("sync_bytes", 0),
        cpu_us=said.get("cpu_us", 0),
        activation_bytes=said.get("activation_bytes", 0),
        per_gpu=True,
    )
