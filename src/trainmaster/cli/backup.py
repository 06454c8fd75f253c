"""`trainmaster backup`: the manager's state in one file, made while it works."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainmaster.cli.support.console import remark, show_answer
from trainmaster.cli.support.files import check_writable
from trainmaster.cli.support.options import AsJson, option
from trainmaster.cli.support.progress_bar import ProgressBar
from trainmaster.cli.up import DATABASE_FILE
from trainmaster.errors import BadInput, Failed, cannot_write

if TYPE_CHECKING:
    from trainmaster.daemon.backup_file import Manifest, Progress

SUFFIXES = (".tar.gz", ".tgz")
TO = "File to write, or a folder for it. Default: trainmaster-TIME.tar.gz in the current folder."
DATA = "Data folder of the manager. Default: TRAINMASTER_DATA, or the user data folder."
DATABASE = "Its database. Default: the one that the data folder was used with last."
WITH_RUNS = "Also logs, checkpoints and code of jobs, as far as they are in the data folder."
VERIFY = "Check this backup and say what it holds; write nothing."
AFTER_S = 1.0
MOST_REMARKS = 5


def backup(
    to: Annotated[Path | None, option("--to FILE", TO)] = None,
    with_runs: Annotated[bool, option("--with-runs", WITH_RUNS)] = False,
    verify: Annotated[Path | None, option("--verify FILE", VERIFY)] = None,
    data: Annotated[Path | None, option("--data DIR", DATA)] = None,
    database: Annotated[str | None, option("--database URL", DATABASE)] = None,
    database_file: Annotated[Path | None, option("--database-file FILE", DATABASE_FILE)] = None,
    as_json: AsJson = False,
) -> None:
    """Write the manager's state into one file: jobs, history, policy, queues, settings.

    It is consistent while the manager works, is the same for SQLite and PostgreSQL, and is readable by
    you alone, since it holds the environment of jobs. `trainmaster restore` puts it back.

    Examples:
        trainmaster backup
        trainmaster backup --to /mnt/backups
        trainmaster backup --with-runs --to /mnt/backups/with-checkpoints.tar.gz
        trainmaster backup --verify /mnt/backups/trainmaster-20261117-041500.tar.gz
    """
    from trainmaster.cli.support.own_store import managed_folder, refuse_others_folder, store_of
    from trainmaster.daemon.backup import write_backup
    from trainmaster.store.errors import StoreError
    from trainmaster.store.open import open_store

    if verify is not None:
        _verify(verify, as_json)
        return
    folder = managed_folder(data)
    refuse_others_folder(folder, root_may=True)
    if not folder.is_dir():
        raise BadInput(f"there is no data folder {folder}: name the manager's with --data.")
    target = _target(to)
    url = store_of(folder, database, database_file)
    try:
        with closing(open_store(url)) as store, ProgressBar("Writing", after_s=AFTER_S) as bar:
            made = write_backup(store, folder, target, with_runs=with_runs, progress=percent(bar))
    except StoreError as error:
        raise Failed(str(error)) from None
    except OSError as error:
        raise cannot_write(str(target), error) from None
    left_out = made.remarks[:MOST_REMARKS]
    more = len(made.remarks) - len(left_out)
    remark("Note", (*left_out, *([f"and {more} more files"] if more > 0 else [])))
    answer = {"file": str(target), "bytes": target.stat().st_size, **made.manifest.model_dump()}
    show_answer(answer, as_json, f"Wrote {target} ({_size(target)}): {_holds(made.manifest)}.")


def percent(bar: ProgressBar) -> Progress:
    """Parts of the work count bytes, rows or files: each is shown in percent."""
    return lambda done, of, what: bar.update(100 * done // max(1, of), 100, what)


def _verify(path: Path, as_json: bool) -> None:
    from trainmaster.daemon.backup_file import BadBackup, verify

    try:
        with ProgressBar("Checking", after_s=AFTER_S) as bar:
            manifest = verify(path, percent(bar))
    except BadBackup as error:
        raise Failed(str(error)) from None
    answer = {"file": str(path), **manifest.model_dump()}
    where = f"{manifest.folder} on {manifest.host}, made {manifest.made_at}"
    show_answer(answer, as_json, f"{path} is whole: {_holds(manifest)}, of {where}.")


def _target(to: Path | None) -> Path:
    name = f"trainmaster-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar.gz"
    target = (to / name if to.is_dir() else to) if to is not None else Path(name)
    if target.exists():
        raise BadInput(f"{target} is there already: name another file.")
    if not str(target).endswith(SUFFIXES):
        raise BadInput(
            f"--to {target} is neither a folder that exists nor the name of a file that ends in .tar.gz."
        )
    check_writable(target, "--to")
    return target.absolute()


def _size(path: Path) -> str:
    from trainmaster.text.formatting import size

    return size(path.stat().st_size)


def _holds(manifest: Manifest) -> str:
    from trainmaster.text.formatting import plural

    runs = ", and the files of runs" if manifest.has_runs else ""
    return f"{plural(manifest.tables.get('jobs', 0), 'job')} up to step {manifest.seq}{runs}"
