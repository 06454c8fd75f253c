"""Arguments from Python in the forms that the command line takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

TRACE = "trace.csv"
PathLike = str | Path


def policies_of(policy: str | PathLike | Sequence[str | PathLike]) -> str:
    return str(policy) if isinstance(policy, str | Path) else ",".join(map(str, policy))


def settings_of(options: Mapping[str, Any] | None) -> list[str]:
    """Options of policies as `--set` has them; a list is written with commas."""
    return [f"{name}={_written(value)}" for name, value in (options or {}).items()]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{each}" for key, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def path_of(path: PathLike | None) -> Path | None:
    return None if path is None else Path(path)


@contextmanager
def trace_file(trace: PathLike | pd.DataFrame) -> Iterator[Path]:
    """The file of a trace; a frame with the columns of a native trace is written to one."""
    if isinstance(trace, str | Path):
        yield Path(trace)
        return
    with TemporaryDirectory(prefix="trainmaster-") as folder:
        path = Path(folder) / TRACE
        trace.to_csv(path, index=False)
        yield path
