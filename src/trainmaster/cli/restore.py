"""`trainmaster restore`: a backup in place of the manager's state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainmaster.cli.backup import AFTER_S, percent
from trainmaster.cli.support.console import show_answer
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.cli.support.progress_bar import ProgressBar
from trainmaster.cli.up import DATABASE_FILE
from trainmaster.errors import Failed, cannot_write

if TYPE_CHECKING:
    from trainmaster.daemon.backup import Restored

DATA = "Data folder to restore into. Default: TRAINMASTER_DATA, or the user data folder."
DATABASE = "Database to restore into, such as postgresql://… Default: SQLite in the data folder."
REPLACE = "Move the database that is there aside; without it, one with jobs is refused."
MOST_NAMED = 8


def restore(
    file: Annotated[Path, argument("FILE", "The backup.")],
    data: Annotated[Path | None, option("--data DIR", DATA)] = None,
    database: Annotated[str | None, option("--database URL", DATABASE)] = None,
    database_file: Annotated[Path | None, option("--database-file FILE", DATABASE_FILE)] = None,
    replace: Annotated[bool, option("--replace", REPLACE)] = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup in place, while no manager runs; the next `trainmaster up` continues from it.

    The whole file is checked before anything changes. Nothing is ended and no file of a run is replaced:
    what started after the backup is taken over by the next start. A backup of an SQLite store can be
    restored into PostgreSQL, and the other way.

    Examples:
        trainmaster restore trainmaster-20261117-041500.tar.gz
        trainmaster restore trainmaster-20261117-041500.tar.gz --replace
        trainmaster restore backup.tar.gz --data /srv/trainmaster --database-file ~/.tm-database
    """
    from trainmaster.cli.support.database_option import database_of
    from trainmaster.cli.support.own_store import managed_folder, refuse_others_folder, sqlite_in
    from trainmaster.daemon import backup
    from trainmaster.daemon.backup_file import BadBackup
    from trainmaster.daemon.request_errors import RequestError
    from trainmaster.store.errors import StoreError

    os.umask(0o077)
    folder = managed_folder(data)
    refuse_others_folder(folder, root_may=False)
    stated = database_of(database, database_file)
    try:
        with ProgressBar("Restoring", after_s=AFTER_S) as bar:
            done = backup.restore(
                file, folder, stated or sqlite_in(folder), replaces=replace, progress=percent(bar)
            )
    except (BadBackup, RequestError, StoreError) as error:
        raise Failed(str(error)) from None
    except OSError as error:
        raise cannot_write(str(folder), error) from None
    answer = {
        "folder": str(folder),
        "aside": done.aside or None,
        "newer_jobs": list(done.newer),
        "gone_jobs": list(done.waiting),
        "original_in_use": done.original or None,
        **done.manifest.model_dump(),
    }
    show_answer(answer, as_json, "\n".join(_sentences(done, folder, data, stated)))


def _sentences(done: Restored, folder: Path, data: Path | None, url: str | None) -> list[str]:
    from trainmaster.text.formatting import first_of, plural

    manifest = done.manifest
    jobs = plural(manifest.tables.get("jobs", 0), "job")
    said = [f"Restored {jobs} into {folder}, as they were at {manifest.made_at}."]
    if done.aside:
        said.append(f"The former database is set aside as {done.aside}.")
    if done.newer:
        named = first_of(done.newer, MOST_NAMED)
        said.append(f"Started after the backup, and taken over at the next start: job {named}.")
    if done.waiting:
        named = first_of(done.waiting, MOST_NAMED)
        said.append(f"Submitted after the backup and never started, so gone: job {named}.")
    if done.files.stayed:
        said.append(
            f"{plural(done.files.stayed, 'file')} of runs that are there: left as they are."
        )
    if done.files.left_out:
        left = plural(done.files.left_out, "file")
        said.append(f"{left} of the backup behind links, or leading elsewhere: left out.")
    if done.original:
        said.append(
            f"Note: A manager works in {done.original} on this machine: jobs that wait or run there are"
            " in the backup too, and would run twice once this one starts."
        )
    where = f" --data {data}" if data is not None else ""
    database = " with the same database" if url is not None else ""
    said.append(f"Start it{database}: trainmaster up{where}")
    return said
