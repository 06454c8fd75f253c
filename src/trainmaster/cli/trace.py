"""`trainmaster trace`: make traces, look into them, and convert them."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support import completion
from trainmaster.cli.support.console import examples, help_if_bare, remark, screen
from trainmaster.cli.support.errors import BadInput
from trainmaster.cli.support.files import check_writable, write_bytes, write_out

if TYPE_CHECKING:
    from trainmaster.model.trace import Trace

app = typer.Typer(
    help="Make traces, look into them, convert them.",
    epilog=examples(
        "trainmaster trace generate --jobs 1000 --gpus 64 --load 0.9 --seed 1 --out trace.csv",
        "trainmaster trace stats trace.csv --gpus 64",
        "trainmaster trace convert cluster_log.csv --out native.csv",
    ),
)

app.callback(invoke_without_command=True)(help_if_bare)

MOST_JOBS = 50_000_000
PLOT_KINDS = (".png", ".svg", ".pdf")

TraceArgument = Annotated[
    Path, typer.Argument(metavar="TRACE", help="A file, or a folder of a public trace.")
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Its format; recognised by its header unless given.",
        autocompletion=completion.formats,
    ),
]
OutOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to; standard output unless given.")
]


class Like(StrEnum):
    """Clusters that a generated trace may resemble."""

    philly = "philly"


@app.command(
    epilog=examples(
        "trainmaster trace generate --like philly --jobs 1000 --gpus 64 --load 0.9 --seed 1 --out t.csv",
        "trainmaster trace generate --jobs 100000 --gpus 2496 --load 0.95 --out year.csv",
    )
)
def generate(
    like: Annotated[Like, typer.Option(help="What it resembles.")] = Like.philly,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="How many jobs.")] = 1000,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the cluster that it loads.")] = 128,
    load: Annotated[
        float, typer.Option(help="GPU time asked for / GPU time there is while jobs arrive.")
    ] = 0.9,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 0,
    out: OutOption = None,
) -> None:
    """Make a synthetic trace, as native CSV."""
    from trainmaster.traces import native, philly_like

    _check_out(out)
    trace = philly_like.generate(jobs, gpus, load, seed)
    write_out(out, lambda stream: native.write(trace, stream))


@app.command(
    epilog=examples(
        "trainmaster trace stats trace.csv --gpus 128",
        "trainmaster trace stats trace.csv --json",
        "trainmaster trace stats trace.csv --plot trace.png",
    )
)
def stats(
    trace: TraceArgument,
    trace_format: FormatOption = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Say what load it offers to so many GPUs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw it: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Say what a trace holds: sizes, run times, ends, arrivals, tenants."""
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
        _draw(loaded, trace.resolve().name, plot)
    if as_json:
        sys.stdout.write(to_json(found))
    else:
        show(found, trace.resolve().name, screen())
    remark("Note", found.notes)


def _draw(loaded: Trace, name: str, plot: Path) -> None:
    from trainmaster.cli.support.trace_plot import draw

    kind = plot.suffix.lower().removeprefix(".")
    write_bytes(plot, lambda out: draw(loaded, name, out, kind))


@app.command(
    epilog=examples(
        "trainmaster trace convert cluster_job_log --out philly.csv",
        "trainmaster trace convert trace.csv --format helios | head",
    )
)
def convert(trace: TraceArgument, trace_format: FormatOption = None, out: OutOption = None) -> None:
    """Write a trace as native CSV."""
    from trainmaster.traces import formats

    _check_out(out)
    read: list[Trace] = []
    write_out(out, lambda stream: read.append(formats.convert(trace, stream, trace_format)))
    remark("Note", read[0].notes)


@app.command("formats", epilog=examples("trainmaster trace formats"))
def list_formats(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the trace formats that can be read."""
    import json

    from rich.table import Table

    from trainmaster.traces.formats import FORMATS

    found = {name: _summary(reader.__module__) for name, reader in FORMATS.items()}
    if as_json:
        entries = [{"name": name, "summary": summary} for name, summary in found.items()]
        sys.stdout.write(json.dumps({"formats": entries}, indent=2) + "\n")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, summary in found.items():
        table.add_row(f"[bold]{name}[/]", summary)
    screen().print(table)


def _summary(module: str) -> str:
    return (sys.modules[module].__doc__ or "").strip().partition("\n")[0]


def _check_out(out: Path | None) -> None:
    if out is not None and str(out) != "-":
        check_writable(out, "--out")
