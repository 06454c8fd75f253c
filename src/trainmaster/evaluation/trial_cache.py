"""Finished trials on disk, one file each, named by a digest of everything that determines its content."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from inspect import getsourcefile
from pathlib import Path

from trainmaster.config.options import is_from_file
from trainmaster.evaluation.score import (
    SERVICE_FLOOR_S,
    TRANSIENT,
    ScoredTrial,
    score_from,
)
from trainmaster.evaluation.suite import (
    PolicySettings,
    SuiteError,
    TraceFile,
    Trial,
)
from trainmaster.evaluation.workloads import file_of
from trainmaster.policy_files import policy_named

FOLDER = ".trials"
NAME_LENGTH = 40
PACKAGE = Path(__file__).parents[1]


def key_of(trial: Trial, folder: Path | None) -> str:
    """The name of the trial's file; equal trials have the same name, whatever their labels."""
    workload, contender = trial.workload, trial.contender
    recipe = {
        "workload": {
            "kind": type(workload.source).__name__,
            "source": asdict(workload.source),
            "cluster": workload.cluster,
            "queues": workload.queues,
            "warm_up": workload.warm_up,
            "content": _content(workload.source, folder),
        },
        "conditions": [trial.conditions.perf, trial.conditions.estimates],
        "contender": {
            "policy": contender.policy,
            "settings": contender.settings,
            "grid": contender.grid,
            "files": [
                _named_files(contender.policy, settings)
                for settings in (contender.settings, *contender.grid)
            ],
        },
        "seed": trial.seed,
        "rules": [SERVICE_FLOOR_S, TRANSIENT],
        "sources": digest_of_policy(contender.policy),
    }
    text = json.dumps(recipe, sort_keys=True, default=_plain)
    return sha256(text.encode()).hexdigest()[:NAME_LENGTH]


def _content(source: object, folder: Path | None) -> str | None:
    """Digest of the trace file, which the recipe only names."""
    if not isinstance(source, TraceFile):
        return None
    file = file_of(source, folder)
    try:
        return file_digest(file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SuiteError(f"{file} cannot be read: {reason}.") from error


def _named_files(policy: str, settings: PolicySettings) -> dict[str, str]:
    """Digests of files that options name."""
    kind = policy_named(policy).options_type
    named = {key: Path(value) for key, value in settings.items() if is_from_file(kind, key)}
    return {key: file_digest(path) for key, path in named.items() if path.is_file()}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} cannot be part of a recipe")


# -- digests of code and files, so that an outdated result is never reused ------------------------------


@cache
def digest_of_policy(name: str) -> str:
    """Changes with the versions of Python and NumPy, with our code, and with the file of a user's policy."""
    own = getsourcefile(policy_named(name))
    assert own is not None, f"{name} has no source file"
    files = sorted(PACKAGE.rglob("*.py"))
    listed = [f"{file.relative_to(PACKAGE)} {file_digest(file)}" for file in files]
    made_with = (str(sys.version_info[:2]), version("numpy"))
    return sha256("\n".join((*made_with, *listed, file_digest(Path(own)))).encode()).hexdigest()


@cache
def file_digest(path: Path) -> str:
    """Of a file's bytes; of a folder's, those of all files in it, with their names."""
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        listed = [f"{each.relative_to(path)} {file_digest(each)}" for each in files]
        return sha256("\n".join(listed).encode()).hexdigest()
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


# -- the folder ----------------------------------------------------------------------------------------


class TrialCache:
    """The folder of finished trials; files are written atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str, trial: Trial) -> ScoredTrial | None:
        """The stored trial; None if there is none that can be read."""
        try:
            kept = json.loads(self._file(key).read_text(encoding="utf-8"))
            return ScoredTrial(trial, score_from(kept["score"]), float(kept["wall_s"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, key: str, scored: ScoredTrial) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = {
            "trial": str(scored.trial),
            "score": asdict(scored.score),
            "wall_s": round(scored.wall_s, 3),
        }
        target = self._file(key)
        partial = target.with_name(f".{key}.{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.json"
