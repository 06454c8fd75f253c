"""`trainmaster compare TRACE`: policies on the user's own trace."""

from __future__ import annotations

from pathlib import Path

from trainmaster.cli.compare import USUAL, Outputs, OwnTrace
from trainmaster.cli.support.compare_runner import run_and_report
from trainmaster.cli.support.console import remark
from trainmaster.errors import BadInput, Failed
from trainmaster.evaluation.own_trace import NAME, TraceQuestion, experiment_of
from trainmaster.evaluation.suite import Experiment, Suite

PAGES, SCORES = ("README.md", "index.html"), "scores.csv"
"""Files that a report replaces, and the file that identifies an earlier report."""


def compare_own(own: OwnTrace, outputs: Outputs) -> None:
    if own.fewer_gpus:
        from trainmaster.cli.support.fewer_gpus import answer

        answer(own, outputs)
        return
    if own.against is not None:
        raise BadInput("--against goes with --fewer-gpus; the first of --policy is the baseline.")
    if outputs.out is not None:
        _check_pages(outputs.out)
    experiment = experiment_for(own, own.policy or USUAL)
    suite = Suite(NAME, experiment.title, (experiment,))
    run_and_report(suite, outputs, outputs.out, outputs.out)


def _check_pages(out: Path) -> None:
    """Do not overwrite a project's own pages; an earlier report may be replaced."""
    for name in PAGES:
        if (out / name).exists() and not (out / SCORES).exists():
            raise Failed(f"--out {out} has a {name} already; name another directory.")


def experiment_for(own: OwnTrace, policies: str) -> Experiment:
    """The question that the command line asks; notes and warnings are printed."""
    assert own.trace is not None
    question = TraceQuestion(
        trace=own.trace,
        cluster=own.cluster,
        policy=policies,
        format=own.format,
        set=own.set,
        queues=own.queues,
        perf=own.perf or "default",
        estimates=own.estimates or "none",
        seeds=own.seeds,
    )
    return experiment_of(question, remark)
