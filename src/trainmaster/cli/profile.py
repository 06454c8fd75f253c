"""Measure a training program before it is scheduled.

Examples:
    trainmaster profile packing -- python train.py
    trainmaster profile packing --copies 1,2,4 --seconds 20 --out packing -- python train.py
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, cast

from trainmaster.cli.support.command import command, group, help_if_bare
from trainmaster.cli.support.console import ErrorOutput, remark, screen, show_table, write_json
from trainmaster.cli.support.errors import BadInput, Failed
from trainmaster.cli.support.files import check_directory, write_bytes, write_text
from trainmaster.cli.support.options import AsJson, Command, option

if TYPE_CHECKING:
    from trainmaster.cli.support.packing_advice import Advice
    from trainmaster.engines.packing_experiment import Experiment, Measurement

app = group(help_if_bare, __doc__)
MOST_COPIES = 48
COPIES = (
    "Numbers of copies to measure, each 1 to 48; the first is what the others are compared with."
)
SECONDS = "Seconds of each measurement, once all copies train."
START = "Seconds that the copies may take until all of them train."
MPS = "Also under MPS. Default: where it is installed."
GPU = "GPU by its number or UUID. Default: the first that CUDA_VISIBLE_DEVICES leaves."
OUT = "Folder for packing.json and packing.png."
JSON_FILE, PLOT_FILE = "packing.json", "packing.png"
HEADINGS = ("copies", "sharing", "ms/step", "max ms", "variance ms²", "steps/s of all", "gain")


@command(app, allow_interspersed_args=False)
def packing(
    words: Command,
    copies: Annotated[str, option("--copies LIST", COPIES)] = "1,2,4,8",
    seconds: Annotated[float, option("--seconds S", SECONDS)] = 10.0,
    start_s: Annotated[float, option("--start-timeout S", START)] = 300.0,
    mps: Annotated[bool | None, option("--mps/--no-mps", MPS)] = None,
    gpu: Annotated[str | None, option("--gpu GPU", GPU)] = None,
    out: Annotated[Path | None, option("--out DIR", OUT)] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how many copies of a program one GPU carries, and recommend a number.

    Runs 1, 2, 4 and 8 copies of the command side by side, without MPS and with it, and times their optimizer
    steps: an unmodified PyTorch program will do. It should train for minutes; copies are ended when they have
    been measured. They are not jobs: keep the GPU free of others, or run all of this as a job.

    Examples:
        trainmaster profile packing -- python train.py
        trainmaster profile packing --copies 1,2,3,4 --seconds 30 --out packing -- python train.py
        trainmaster run --gpus 1 -- trainmaster profile packing -- python train.py
    """
    from trainmaster.engines.packing_experiment import Experiment

    counts = counts_of(copies)
    if not seconds > 0:
        raise BadInput(f"--seconds {seconds:g} is not a length of time: it must be above 0.")
    if not start_s > 0:
        raise BadInput(f"--start-timeout {start_s:g} is not a length of time: it must be above 0.")
    check_directory(out, "--out")
    device, name = device_of(gpu)
    ways = sharings(mps, device)
    if not device:
        remark("Note", ("there is no GPU here: copies share the CPU, and there is no MPS",))
    log_only_warnings()
    rows = measured(Experiment(words, device, seconds, start_s), ways, counts)
    report(rows, name, words, out, as_json)


def log_only_warnings() -> None:
    """What MPS daemons log is for a manager."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, ErrorOutput())),
    )


def counts_of(text: str) -> list[int]:
    """2,4 as numbers; one copy is what the others are compared with."""
    found = [each.strip() for each in text.split(",")]
    if not all(each.isdecimal() and 1 <= int(each) <= MOST_COPIES for each in found):
        raise BadInput(
            f"--copies {text} is not a list such as 1,2,4,8: numbers of 1 to {MOST_COPIES}."
        )
    return sorted({1, *map(int, found)})


def device_of(asked: str | None) -> tuple[str, str]:
    """UUID and name of the GPU; empty where there is none."""
    from trainmaster.gpu.devices import visible
    from trainmaster.gpu.driver import open_driver
    from trainmaster.model.topology import TopologyError

    try:
        gpus = visible(open_driver().gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    except TopologyError as problem:
        raise Failed(str(problem)) from None
    if asked is not None:
        chosen = visible(gpus, asked)
        if len(chosen) != 1:
            known = ", ".join(f"{each.number} ({each.kind})" for each in gpus) or "none"
            raise BadInput(f"--gpu {asked} is not one of this machine's GPUs: {known}.")
        gpus = chosen
    return (gpus[0].uuid, gpus[0].kind) if gpus else ("", "CPU")


def sharings(mps: bool | None, device: str) -> list[str]:
    """The ways of sharing to measure."""
    from trainmaster.engines import packing_experiment as experiment
    from trainmaster.gpu.mps import CONTROL, control_program

    program = control_program() if device else None
    if mps and program is None:
        why = f"{CONTROL} is not installed" if device else "there is no GPU here"
        raise BadInput(f"--mps cannot be had: {why}.")
    if mps is None and device and program is None:
        remark("Note", (f"{CONTROL} is not installed: measured without MPS only",))
    use = program is not None if mps is None else mps
    return [experiment.TIME, experiment.MPS] if use else [experiment.TIME]


def measured(
    experiment: Experiment, ways: Sequence[str], counts: Sequence[int]
) -> list[Measurement]:
    """All measurements; more copies are left out where some do not fit any more."""
    from trainmaster.cli.support.packing_advice import NAMES
    from trainmaster.cli.support.progress_bar import ProgressBar
    from trainmaster.engines.packing_experiment import ExperimentError
    from trainmaster.gpu.mps import MpsError

    rows: list[Measurement] = []
    with ProgressBar("measuring") as bar:
        for way in ways:
            for count in counts:
                what = f"{count} {'copy' if count == 1 else 'copies'} {NAMES[way]}"
                done = len(rows)

                def show(words: str, what: str = what, done: int = done) -> None:
                    bar.update(done, len(ways) * len(counts), f"{what}: {words}")

                try:
                    rows.append(experiment.measure(way, count, show))
                except (ExperimentError, MpsError) as problem:
                    if not rows:
                        raise Failed(f"{what}: {problem}") from None
                    bar.say(f"Note: {what} were not measured, nor more: {problem}")
                    break
                bar.say(f"{what}: {rows[-1].mean_ms:.2f} ms per step")
    return rows


def report(
    rows: Sequence[Measurement],
    device: str,
    words: Sequence[str],
    out: Path | None,
    as_json: bool,
) -> None:
    from trainmaster.cli.support.packing_advice import advise, gain, linear_law

    advice, law = advise(rows), linear_law(rows)
    answer = {
        "command": list(words),
        "device": device,
        "rows": [asdict(row) | {"gain": round(gain(row, rows), 4)} for row in rows],
        "recommended": advice._asdict(),
        "linear_law": None if law is None else law._asdict(),
    }
    if out is not None:
        write_files(rows, advice, answer, device, out)
    if as_json:
        write_json(answer)
        return
    show_table(
        HEADINGS,
        [
            (
                row.copies,
                row.sharing,
                f"{row.mean_ms:.2f}",
                f"{row.max_ms:.2f}",
                f"{row.variance_ms2:.3g}",
                f"{row.steps_per_s:.1f}",
                f"{gain(row, rows):.2f}",
            )
            for row in rows
        ],
    )
    screen().print(advice.sentence, markup=False)
    if law is not None:
        screen().print(law.sentence, markup=False, soft_wrap=True)
    if advice.copies > 1:
        screen().print(
            f"The scheduler does so after: {advice.command}", markup=False, soft_wrap=True
        )


def write_files(
    rows: Sequence[Measurement], advice: Advice, answer: object, device: str, out: Path
) -> None:
    import json

    out.mkdir(parents=True, exist_ok=True)
    write_text(out / JSON_FILE, lambda file: file.write(json.dumps(answer, indent=1) + "\n"))
    if find_spec("matplotlib") is None:  # it is not in the bundle for GPU machines
        remark("Note", (f"wrote {out / JSON_FILE}; no plot: matplotlib is not installed",))
        return
    from trainmaster.cli.support.packing_plot import drawn

    title = f"Copies on one device ({device}): {advice.copies} recommended"
    write_bytes(out / PLOT_FILE, lambda file: file.write(drawn(rows, title, "png")))
    remark("Note", (f"wrote {out / JSON_FILE} and {out / PLOT_FILE}",))
