"""`trainmaster profile program`: one copy of a program measured, kept and shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainmaster.cli.support.console import remark, say, show_table, write_json
from trainmaster.cli.support.progress_bar import ProgressBar
from trainmaster.client.program_profiles import StoredProfile, keep
from trainmaster.engines.packing_experiment import Experiment, ExperimentError
from trainmaster.errors import Failed
from trainmaster.model.profile import Profile
from trainmaster.profiling.program_profile import profile_program
from trainmaster.text.formatting import size


def profile_and_show(
    experiment: Experiment, device: str, batch: int | None, out: Path | None, as_json: bool
) -> None:
    with ProgressBar("profiling") as bar:
        try:
            profile = profile_program(experiment, lambda words: bar.update(0, 1, words))
        except ExperimentError as problem:
            raise Failed(f"{problem}") from None
    profile = replace(profile, batch=batch or profile.batch)
    stored = StoredProfile(tuple(experiment.command), str(Path.cwd()), device, profile)
    place = keep(stored, out)
    for missing in _missing(profile):
        remark("Note", (missing,))
    if as_json:
        write_json(stored.to_json())
        return
    show_table(("measured on one device", device), list(_rows(profile)))
    say(f"Kept in {place}; `trainmaster estimate --speed {place}` predicts more devices.")


def _rows(profile: Profile) -> list[tuple[str, str]]:
    rows = [("step", f"{profile.step_us / 1000:.2f} ms")]
    if profile.batch:
        rate = profile.batch * 1e6 / profile.step_us
        rows += [
            ("examples of a step", str(profile.batch)),
            ("samples/s", f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"),
        ]
    if profile.sync_bytes:
        rows.append(("trained parameters", size(profile.sync_bytes)))
    if profile.cpu_us:
        rows.append(("CPU time of a step", f"{profile.cpu_us / 1000:.2f} ms"))
    if profile.activation_bytes:
        rows.append(("activations", size(profile.activation_bytes)))
    return rows


def _missing(profile: Profile) -> list[str]:
    found = []
    if not profile.sync_bytes:
        found.append("its parameters were not seen, so its speed on more devices is not predicted")
    if not profile.batch:
        found.append("its examples per step were not seen: say them with --batch")
    return found
