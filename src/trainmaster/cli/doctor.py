"""`trainmaster doctor`: what is wrong with a manager, its data folder and its machine, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.backup import DATABASE
from trainmaster.cli.support.console import screen, write_json
from trainmaster.cli.support.options import AsJson, option
from trainmaster.cli.up import DATABASE_FILE
from trainmaster.errors import FAILED

if TYPE_CHECKING:
    from trainmaster.cli.diagnosis.checks import Finding

DATA = "Data folder to look at. Default: TRAINMASTER_DATA, or the user data folder."
ALL = "Show also what is in order."
COLOURS = {"ok": "green", "warning": "yellow", "fault": "red"}


def doctor(
    shows_all: Annotated[bool, option("-a --all", ALL)] = False,
    data: Annotated[Path | None, option("--data DIR", DATA)] = None,
    database: Annotated[str | None, option("--database URL", DATABASE)] = None,
    database_file: Annotated[Path | None, option("--database-file FILE", DATABASE_FILE)] = None,
    as_json: AsJson = False,
) -> None:
    """Look for faults: machine, data folder, store, manager, sockets, clock, GPUs, disks, runs.

    It works with and without a running manager, and changes nothing. Each finding has one sentence and
    what to do. The exit code is 1 where there is a fault; warnings do not count.

    Examples:
        trainmaster doctor
        trainmaster doctor --all
        trainmaster doctor --json --data /srv/trainmaster
    """
    from trainmaster.cli.diagnosis.checks import Verdict, findings
    from trainmaster.cli.diagnosis.gather import gather
    from trainmaster.cli.support.own_store import managed_folder, refuse_others_folder, store_of

    folder = managed_folder(data)
    refuse_others_folder(folder, root_may=True)
    found = list(findings(gather(folder, store_of(folder, database, database_file))))
    if as_json:
        write_json([_row(each) for each in found])
    else:
        _show(found, shows_all)
    if any(each.verdict is Verdict.FAULT for each in found):
        raise typer.Exit(FAILED)


def _row(found: Finding) -> dict[str, str]:
    return {
        "check": found.check,
        "verdict": found.verdict.value,
        "sentence": found.sentence,
        "advice": found.advice,
    }


def _show(found: list[Finding], shows_all: bool) -> None:
    from rich.text import Text

    from trainmaster.cli.diagnosis.checks import Verdict
    from trainmaster.text.formatting import plural

    out = screen()
    for each in found:
        verdict = each.verdict.value
        if each.verdict is Verdict.OK and not shows_all:
            continue
        out.print(Text(f"{verdict:9}", style=COLOURS[verdict]) + Text(each.sentence))
        if each.advice:
            out.print(Text(f"{'':9}{each.advice}", style="dim"))
    faults, warnings, fine = (
        sum(each.verdict is verdict for each in found)
        for verdict in (Verdict.FAULT, Verdict.WARNING, Verdict.OK)
    )
    said = f"{plural(faults, 'fault')}, {plural(warnings, 'warning')}, {fine} in order"
    more = "." if shows_all or not fine else " (--all shows them)."
    out.print(Text(said + more))
