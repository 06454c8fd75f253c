"""Generate, describe and convert traces.

Examples:
    trainmaster trace generate --jobs 1000 --gpus 64 --load 0.9 --seed 1 --out trace.csv
    trainmaster trace stats trace.csv --gpus 64
    trainmaster trace convert cluster_log.csv --out native.csv
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainmaster.cli.support import completion
from trainmaster.cli.support.command import command, group, help_if_bare
from trainmaster.cli.support.console import remark, screen, show_pairs, write_json, write_json_text
from trainmaster.cli.support.files import check_writable, write_bytes, write_out
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.errors import BadInput

if TYPE_CHECKING:
    from trainmaster.model.trace import Trace

app = group(help_if_bare, __doc__)
MOST_JOBS = 50_000_000
MOST_LOAD = 10.0
PLOT_KINDS = (".png", ".svg", ".pdf")
FORMAT = "Format of the trace. Default: recognised by its header."
LOAD = "GPU time that jobs ask for, divided by the GPU time that there is while they arrive."

TraceArgument = Annotated[Path, argument("TRACE", "A file, or a folder of a public trace.")]
FormatOption = Annotated[
    str | None, option("--format NAME", FORMAT, autocompletion=completion.formats)
]
OutOption = Annotated[Path | None, option("--out FILE", "Output file. Default: standard output.")]


class Like(StrEnum):
    """Clusters that a generated trace may resemble."""

    philly = "philly"
    alibaba = "alibaba"


@command(app)
def generate(
    like: Annotated[Like, option("--like", "Cluster that it resembles.")] = Like.philly,
    jobs: Annotated[int, option("--jobs N", "Number of jobs.", min=1, max=MOST_JOBS)] = 1000,
    gpus: Annotated[int, option("--gpus N", "GPUs of the cluster that it loads.", min=1)] = 128,
    load: Annotated[float, option("--load L", LOAD)] = 0.9,
    seed: Annotated[
        int, option("--seed N", "Random seed: the same seed gives the same bytes.", min=0)
    ] = 0,
    out: OutOption = None,
) -> None:
    """Generate a synthetic trace, as native CSV.

    Examples:
        trainmaster trace generate --like philly --jobs 1000 --gpus 64 --load 0.9 --seed 1 --out t.csv
        trainmaster trace generate --like alibaba --jobs 10000 --gpus 512 --out shares.csv
        trainmaster trace generate --jobs 100000 --gpus 2496 --load 0.95 --out year.csv
    """
    from trainmaster.traces import native
    from trainmaster.traces.generators import GENERATORS

    check_writable(out, "--out")
    if not 0 < load <= MOST_LOAD:
        raise BadInput(
            f"--load {load:g} is not a load: it is a fraction of the cluster, 0.9 for 90 %,"
            f" and at most {MOST_LOAD:g}."
        )
    trace = GENERATORS[like.value](jobs, gpus, load, seed)
    write_out(out, lambda stream: native.write(trace, stream))


@command(app)
def stats(
    trace: TraceArgument,
    trace_format: FormatOption = None,
    gpus: Annotated[
        int | None, option("--gpus N", "Also show the load that it puts on N GPUs.", min=1)
    ] = None,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, option("--plot FILE.png", "Draw it into a .png, .svg or .pdf file.")
    ] = None,
) -> None:
    """Describe a trace: sizes, run times, outcomes, arrivals, queues, users and models.

    Examples:
        trainmaster trace stats trace.csv --gpus 128
        trainmaster trace stats trace.csv --json
        trainmaster trace stats trace.csv --plot trace.png
    """
    from trainmaster.cli.support.trace_stats import show, to_json
    from trainmaster.traces.formats import load
    from trainmaster.traces.stats import describe

    if plot is not None:
        if plot.suffix.lower() not in PLOT_KINDS:
            raise BadInput(f"--plot {plot} must end with one of {', '.join(PLOT_KINDS)}.")
        check_writable(plot, "--plot")
    loaded = load(trace, trace_format)
    found = describe(loaded, gpus)
    if plot is not None:
        from trainmaster.cli.support.trace_plot import draw

        kind = plot.suffix.lower().removeprefix(".")
        write_bytes(plot, lambda out: draw(loaded, trace.resolve().name, out, kind))
    if as_json:
        write_json_text(to_json(found))
    else:
        show(found, trace.resolve().name, screen())
    remark("Note", found.notes)


@command(app)
def convert(trace: TraceArgument, trace_format: FormatOption = None, out: OutOption = None) -> None:
    """Write a trace as native CSV.

    Examples:
        trainmaster trace convert cluster_job_log --out philly.csv
        trainmaster trace convert trace.csv --format helios | head
    """
    from trainmaster.traces import formats

    check_writable(out, "--out")
    read: list[Trace] = []
    write_out(out, lambda stream: read.append(formats.convert(trace, stream, trace_format)))
    remark("Note", read[0].notes)


@command(app, "formats")
def list_formats(as_json: AsJson = False) -> None:
    """List the trace formats that can be read.

    Examples:
        trainmaster trace formats
    """
    from trainmaster.traces.formats import FORMATS

    docs = {name: sys.modules[reader.__module__].__doc__ for name, reader in FORMATS.items()}
    found = {name: (doc or "").strip().partition("\n")[0] for name, doc in docs.items()}
    if as_json:
        entries = [{"name": name, "summary": summary} for name, summary in found.items()]
        write_json({"formats": entries})
    else:
        show_pairs(found)
