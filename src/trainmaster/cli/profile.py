"""Measure a training program before it is scheduled.

Examples:
    trainmaster profile packing -- python train.py
    trainmaster profile program -- python train.py
    trainmaster profile links
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, cast

from trainmaster.cli.support.command import command, group, help_if_bare
from trainmaster.cli.support.console import ErrorOutput, remark, screen, show_table, write_json
from trainmaster.cli.support.files import check_directory, write_bytes, write_text
from trainmaster.cli.support.options import AsJson, Command, option
from trainmaster.errors import BadInput, Failed

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
BATCH = "Examples in a step. Default: the first dimension of what the model is called with."
STEPS_FOR = "Seconds of the measurement, once it trains."
PROFILE_OUT = "Also write the profile to this file, for another machine or user."
PYTHON = "Python of the training environment, with torch. Default: that of this command."
DEVICES = "Devices of this node to measure between; 1: none. Default: all GPUs, else 2 processes."
NODES = "Nodes that measure together, each by this command. Default: WORLD_SIZE, or 1."
RANK = "Number of this node, from 0. Default: RANK."
MEET = "Where they meet: an address of node 0 and a free port. Default: MASTER_ADDR:MASTER_PORT."
LEVEL = "The level that lies between these nodes, as the cluster file has it."
SIZE_FOR = "Seconds for each of five sizes."
WAIT = "Seconds that nodes wait for each other."
LINKS_OUT = "File for the links. Default: links.yaml in the data folder, which `up` reads."
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
    check_seconds("--seconds", seconds)
    check_seconds("--start-timeout", start_s)
    check_directory(out, "--out")
    device, name = device_of(gpu)
    ways = sharings(mps, device)
    if not device:
        remark("Note", ("there is no GPU here: copies share the CPU, and there is no MPS",))
    log_only_warnings()
    rows = measured(Experiment(words, device, seconds, start_s), ways, counts)
    report(rows, name, words, out, as_json)


@command(app, allow_interspersed_args=False)
def program(
    words: Command,
    batch: Annotated[int | None, option("-b --batch N", BATCH, min=1)] = None,
    seconds: Annotated[float, option("--seconds S", STEPS_FOR)] = 10.0,
    start_s: Annotated[float, option("--start-timeout S", START)] = 300.0,
    gpu: Annotated[str | None, option("--gpu GPU", GPU)] = None,
    out: Annotated[Path | None, option("--out FILE", PROFILE_OUT)] = None,
    as_json: AsJson = False,
) -> None:
    """Profile a training program on one device, from which its speed on more is predicted.

    Runs the command for a while, and notes how long its optimizer steps take, how many bytes of parameters it
    trains, the examples of a step, its CPU time, and on a GPU the memory that a step takes and gives back: an
    unmodified PyTorch program will do. It is ended when it has been measured. `estimate --speed` predicts
    from the profile, and `submit` and `run` send it along with jobs of this command in this folder.

    Examples:
        trainmaster profile program -- python train.py
        trainmaster profile program --batch 64 --out train.profile -- python train.py
    """
    from trainmaster.cli.support.program_profiling import profile_and_show
    from trainmaster.engines.packing_experiment import Experiment

    check_seconds("--seconds", seconds)
    check_seconds("--start-timeout", start_s)
    device, name = device_of(gpu)
    log_only_warnings()
    profile_and_show(Experiment(words, device, seconds, start_s), name, batch, out, as_json)


@command(app)
def links(
    devices: Annotated[int | None, option("--devices N", DEVICES, min=1)] = None,
    nodes: Annotated[int | None, option("--nodes N", NODES, min=1)] = None,
    rank: Annotated[int | None, option("--rank N", RANK, min=0)] = None,
    meet: Annotated[str | None, option("--meet HOST:PORT", MEET)] = None,
    level: Annotated[str, option("--level NAME", LEVEL)] = "rack",
    seconds: Annotated[float, option("--seconds S", SIZE_FOR)] = 1.0,
    wait_s: Annotated[float, option("--wait S", WAIT)] = 300.0,
    python: Annotated[str, option("--python FILE", PYTHON)] = sys.executable,
    out: Annotated[Path | None, option("--out FILE", LINKS_OUT)] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the links between the devices of this node, and between nodes.

    Bandwidth and latency are fitted from all-reduces of several sizes: by NCCL between GPUs, else by gloo
    between processes. For several nodes start it on each of them, or as a job with one process for each node;
    node 0 writes the file. `estimate --speed` and the policies of the next `trainmaster up` use it.

    Examples:
        trainmaster profile links
        trainmaster profile links --nodes 2 --rank 0 --meet 10.0.0.1:29500
        trainmaster run --gpus 16 -- trainmaster profile links --out links.yaml
    """
    from trainmaster.cli.support.link_profiling import meeting_of, profile_links
    from trainmaster.profiling.links import LinkMeter

    check_seconds("--seconds", seconds)
    check_seconds("--wait", wait_s)
    meeting = meeting_of(nodes, rank, meet)
    profile_links(LinkMeter(python, seconds, wait_s), devices, meeting, level, out, as_json)


def check_seconds(name: str, value: float) -> None:
    if not value > 0:
        raise BadInput(f"{name} {value:g} is not a length of time: it must be above 0.")


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
