"""`trainmaster compare`: many policies on many traces and seeds, under equal conditions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.support import completion
from trainmaster.cli.support import scenario_options as options
from trainmaster.cli.support.files import check_directory
from trainmaster.errors import BadInput

USUAL = "las,tiresias-l,trainmaster"
"""Default policies of a comparison on the user's own trace."""
RESULTS = Path("results")
PART = "-part"
"""Suffix of the folder of a partly run suite, so that it does not replace a complete one."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go, and how they are made."""

    out: Path | None
    as_json: bool
    processes: int
    is_fresh: bool
    data_folder: Path | None
    is_wide: bool


@dataclass(frozen=True, slots=True)
class OwnTrace:
    """The options of a comparison on the user's own trace."""

    trace: Path | None
    format: str | None
    cluster: str | None
    policy: str | None
    set: tuple[str, ...]
    queues: Path | None
    perf: str | None
    estimates: str | None
    against: str | None
    fewer_gpus: bool
    seeds: int | None

    def options_given(self) -> list[str]:
        """The given options that need a trace of one's own."""
        own = (each.name for each in fields(self) if each.name not in ("trace", "seeds"))
        return [f"--{name.replace('_', '-')}" for name in own if getattr(self, name)]


Trace = Annotated[
    Path | None, typer.Argument(metavar="TRACE", help="A trace of your own, instead of a suite.")
]
SuiteName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="A fixed set of experiments.", autocompletion=completion.suites
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="EXPERIMENT", help="Run only this experiment of the suite (repeatable)."),
]
ListSuites = Annotated[
    bool, typer.Option("--list", help="List the suites; with --suite, its experiments in detail.")
]
Policies = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help=f"{options.POLICIES} (default: {USUAL}).",
        autocompletion=completion.policies,
    ),
]
FewerGpus = Annotated[
    bool,
    typer.Option(
        "--fewer-gpus",
        help="Find the smallest cluster on which --policy matches --against on the full cluster.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With --fewer-gpus: the policy to match.",
        autocompletion=completion.one_policy,
    ),
]
Seeds = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Number of seeds, if anything is random.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for finished trials and the report: the report of a suite goes into DIR/NAME"
        " (default: results), that of a TRACE into DIR itself"
        " (default: not written).",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of the public traces, for suites that need them."),
]
Processes = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Number of parallel processes (default: one per core)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write all scores, or the list, as JSON.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Show every measure, whatever the width of the screen.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Run everything again, ignoring cached trials.")
]


def compare(
    trace: Trace = None,
    suite: SuiteName = None,
    only: Only = None,
    list_suites: ListSuites = False,
    cluster: Annotated[str | None, options.CLUSTER] = None,
    policy: Policies = None,
    set_option: Annotated[list[str] | None, options.SET_OPTION] = None,
    trace_format: Annotated[str | None, options.FORMAT] = None,
    queues: Annotated[Path | None, options.QUEUES] = None,
    perf: Annotated[str | None, options.PERF] = None,
    estimates: Annotated[str | None, options.ESTIMATES] = None,
    fewer_gpus: FewerGpus = False,
    against: Against = None,
    seeds: Seeds = None,
    out: Out = None,
    data: Data = None,
    processes: Processes = None,
    as_json: AsJson = False,
    wide: Wide = False,
    fresh: Fresh = False,
) -> None:
    """Compare policies on many traces and seeds, with intervals.

    Run the same command again to continue after an interruption.

    --cluster, --policy, --set, --queues, --perf and --estimates (default: none) apply only to a TRACE of
    your own.

    Examples:
        trainmaster compare --list
        trainmaster compare --list --suite published
        trainmaster compare --suite small --out results
        trainmaster compare --suite published --processes 8
        trainmaster compare trace.csv --cluster 32x4 --policy fifo,las,tiresias-l
        trainmaster compare trace.csv --cluster 32x4 --policy las --estimates noisy:0.3 --seeds 20
        trainmaster compare trace.csv --cluster 32x4 --policy fair,trainmaster --queues queues.yaml
        trainmaster compare trace.csv --cluster 32x4 --fewer-gpus --policy las --against fifo
    """
    own = OwnTrace(
        trace=trace,
        format=trace_format,
        cluster=cluster,
        policy=policy,
        set=tuple(set_option or ()),
        queues=queues,
        perf=perf,
        estimates=estimates,
        against=against,
        fewer_gpus=fewer_gpus,
        seeds=seeds,
    )
    chosen = only or []
    _check_modes(own, suite, chosen, is_list=list_suites)
    check_directory(out, "--out")
    if list_suites:
        _list_suites(suite, chosen, seeds, as_json)
        return
    outputs = Outputs(out, as_json, processes or _cores(), fresh, _data_folder(data), wide)
    if suite is not None:
        _compare_suite(suite, chosen, seeds, outputs)
    else:
        _compare_trace(own, outputs)


def _list_suites(suite: str | None, only: list[str], seeds: int | None, as_json: bool) -> None:
    from trainmaster.cli.support.suite_list import show_suites

    show_suites(suite, only, seeds, as_json=as_json)


def _compare_trace(own: OwnTrace, outputs: Outputs) -> None:
    from trainmaster.cli.support.compare_trace import compare_own

    compare_own(own, outputs)


def _compare_suite(name: str, only: list[str], seeds: int | None, outputs: Outputs) -> None:
    from trainmaster.cli.support.compare_runner import run_and_report
    from trainmaster.evaluation.selection import narrowed
    from trainmaster.evaluation.suites import suite_of

    is_whole = not only and seeds is None
    chosen = narrowed(suite_of(name), only, seeds)
    out = outputs.out or RESULTS
    run_and_report(chosen, outputs, out, out / (name if is_whole else f"{name}{PART}"))


def _check_modes(own: OwnTrace, suite: str | None, only: list[str], *, is_list: bool) -> None:
    """A suite or a trace, and only options that go with it."""
    trace, given = own.trace, own.options_given()
    if is_list and trace is not None:
        raise BadInput(f"--list shows what suites there are; leave {trace} out.")
    if is_list and only and suite is None:
        raise BadInput("--only chooses experiments of a --suite; name that as well.")
    if is_list:
        return
    if (trace is None) == (suite is None):
        name = "name a suite (--suite small; --list shows all) or a trace of your own"
        raise BadInput(f"{name}." if trace is None else f"{name}, not both.")
    if trace is not None and only:
        raise BadInput("--only chooses experiments of a --suite; a trace of your own has one.")
    if suite is not None and given:
        raise BadInput(f"{given[0]} goes with a trace of your own; a suite has its own.")


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _data_folder(data: Path | None) -> Path | None:
    if data is not None and not data.is_dir():
        raise BadInput(f"--data {data} is not a directory.")
    return None if data is None else data.resolve()
