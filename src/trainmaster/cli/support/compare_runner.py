"""Run a suite with its progress on a screen or in a log; then its table, its files, its exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from trainmaster.cli.compare import Outputs
from trainmaster.cli.support.console import remark, write_json_text
from trainmaster.cli.support.errors import INTERRUPTED
from trainmaster.cli.support.files import check_directory, write_text
from trainmaster.cli.support.progress_bar import ProgressBar
from trainmaster.errors import BadInput, Failed, cannot_write
from trainmaster.evaluation.runner import Interrupted, SuiteProgress, run_suite
from trainmaster.evaluation.score import Skipped, SuiteResult
from trainmaster.evaluation.scores_json import to_json
from trainmaster.evaluation.suite import Suite
from trainmaster.evaluation.trial_cache import FOLDER, TrialCache
from trainmaster.text.formatting import duration, plural

LINE_EVERY_S = 10.0
"""Between two lines of progress in a log."""
NAMED = 5
"""Failed trials that are named before they are only counted."""


def run_and_report(
    suite: Suite, outputs: Outputs, out: Path | None, report_in: Path | None
) -> SuiteResult:
    """Run a suite, show its table, write its files; complain of failures."""
    if report_in is not None:
        check_directory(report_in, "--out")
    result = run(suite, outputs, out)
    if outputs.as_json:
        write_json_text(to_json(result))
    else:
        from trainmaster.cli.support.compare_tables import show

        show(result, is_wide=outputs.is_wide)
        sys.stdout.flush()
    if report_in is not None and result.scored:
        _write(result, report_in)
    finish(result)
    return result


def finish(result: SuiteResult) -> None:
    """Failures by name, and the exit code that goes with them."""
    for each in result.failures[:NAMED]:
        remark("Failed", [f"{each.trial}: {each.error}"])
    if result.failures:
        more = len(result.failures) - NAMED
        rest = f", {more} of which are not named here" if more > 0 else ""
        raise Failed(f"{plural(len(result.failures), 'trial')} failed{rest}.")


def run(suite: Suite, outputs: Outputs, out: Path | None, *, is_quiet: bool = False) -> SuiteResult:
    """All trials of the suite; kept under `out`, or nowhere."""
    if out is not None:
        check_directory(out / FOLDER, "--out")
    with TemporaryDirectory(prefix="trainmaster-") as nowhere:
        kept_in = out if out is not None else Path(nowhere)
        cache = TrialCache(kept_in / FOLDER)
        with ProgressBar("trials") as bar:
            try:
                result = run_suite(
                    suite,
                    cache,
                    folder=outputs.data_folder,
                    processes=outputs.processes,
                    is_fresh=outputs.is_fresh,
                    on_progress=ProgressLog(bar, is_quiet=is_quiet),
                )
            except Interrupted as error:
                bar.stop()
                remark("Interrupted", [str(error) if out is not None else _nothing_kept(error)])
                raise typer.Exit(INTERRUPTED) from None
            except OSError as error:
                raise cannot_write(str(kept_in), error) from error
    if not result.suite.experiments:
        reasons = "; ".join(dict.fromkeys(each.why for each in result.skipped))
        raise BadInput(f"nothing of it can be run here: {reasons}.")
    remark("Skipped", _skipped(result.skipped))
    return result


def _nothing_kept(error: Interrupted) -> str:
    return f"{error.done:,} of {error.in_all:,} trials were done; with --out they would be kept."


def _skipped(skipped: Sequence[Skipped]) -> Iterator[str]:
    """Each reason once, with the experiments and workloads it applies to."""
    by_reason: dict[str, list[str]] = {}
    for each in skipped:
        by_reason.setdefault(each.why, []).append(f"{each.experiment}/{each.what}")
    for why, what in by_reason.items():
        more = f" and {len(what) - NAMED} more" if len(what) > NAMED else ""
        yield f"{', '.join(what[:NAMED])}{more}: {why}."


def _write(result: SuiteResult, folder: Path) -> None:
    """Write the report and its scores."""
    from trainmaster.evaluation.report import ReportError, write_report

    text = to_json(result)
    try:
        page = write_report(result, folder)
        write_text(folder / "scores.json", lambda target: target.write(text))
    except ReportError as error:
        raise Failed(str(error)) from error
    remark("Report", [str(page)])


class ProgressLog:
    """Shows the progress of the trials: a bar on a screen, now and then a line in a log."""

    def __init__(self, bar: ProgressBar, *, is_quiet: bool) -> None:
        self._bar = bar
        self._is_quiet = is_quiet
        self._began = time.perf_counter()
        self._said = self._began
        self._known = 0

    def __call__(self, progress: SuiteProgress) -> None:
        if progress.trial is None:
            self._known = progress.done
            if progress.done and not self._is_quiet:
                self._bar.say(
                    f"{progress.done:,} of {plural(progress.in_all, 'trial')} are in the cache."
                )
            return
        if progress.error is not None:
            self._bar.say(f"Failed: {progress.trial}: {progress.error}")
        self._bar.update(progress.done, progress.in_all, str(progress.trial))
        now = time.perf_counter()
        is_last = progress.done == progress.in_all
        is_due = now - self._said >= LINE_EVERY_S and not self._bar.is_watched
        if (is_last or is_due) and not self._is_quiet:
            self._said = now
            self._bar.say(self._line(progress, now - self._began))

    def _line(self, progress: SuiteProgress, took_s: float) -> str:
        if progress.done == progress.in_all:
            return f"{plural(progress.in_all, 'trial')} done in {duration(took_s)}."
        left_s = took_s / max(1, progress.done - self._known) * (progress.in_all - progress.done)
        return (
            f"{progress.done:,} of {progress.in_all:,} trials done, about {duration(left_s)} left."
        )
