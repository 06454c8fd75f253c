"""The manager's copies of logs: nothing twice, nothing left out, whatever is renamed or cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.engines.local.logs import RankLog, path_of
from trainmaster.engines.ray.log_mirror import LogMirror
from trainmaster.engines.ray.log_pieces import new_pieces
from trainmaster.engines.ray.node_reports import LogPlace
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LogLimits

RUN = Run("12", 1)
LIMITS = LogLimits(file_bytes=100, files=4)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    folder = tmp_path / "node"
    folder.mkdir()
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "manager"
    folder.mkdir()
    return folder


def rank_log(node: Path, rank: int = 0) -> RankLog:
    return RankLog(path_of(str(node), rank), LIMITS.file_bytes, LIMITS.files)


def mirrored(folder: Path, rank: int = 0) -> bytes:
    files = sorted(folder.glob(f"rank-{rank}.log*"), reverse=True)
    return b"".join(file.read_bytes() for file in files)


def test_output_is_taken_on_from_where_it_was_read(node: Path, copy: Path) -> None:
    log, mirror, places = rank_log(node), LogMirror(copy, "0-0", LIMITS), dict[int, LogPlace]()
    for line in (b"one\n", b"two\n", b"three\n"):
        log.write(line)
        mirror.write(new_pieces(node, RUN, places))
    assert mirrored(copy) == b"one\ntwo\nthree\n"
    assert mirror.places == places


def test_files_that_are_put_aside_meanwhile_are_read_to_their_end(node: Path, copy: Path) -> None:
    log, mirror, places = rank_log(node), LogMirror(copy, "0-0", LIMITS), dict[int, LogPlace]()
    said = [f"line {number:03}\n".encode() for number in range(30)]
    for at in range(0, 30, 10):
        for line in said[at : at + 10]:
            log.write(line)
        mirror.write(new_pieces(node, RUN, places))
    assert mirrored(copy) == b"".join(said)


def test_what_was_dropped_before_it_was_read_is_missing_and_the_rest_is_there(
    node: Path, copy: Path
) -> None:
    log, mirror, places = rank_log(node), LogMirror(copy, "0-0", LIMITS), dict[int, LogPlace]()
    log.write(b"first\n")
    mirror.write(new_pieces(node, RUN, places))
    said = [f"line {number:03}\n".encode() for number in range(100)]
    for line in said:
        log.write(line)
    mirror.write(new_pieces(node, RUN, places))
    assert mirrored(copy).endswith(b"".join(said[-30:]))


def test_a_piece_that_comes_twice_is_written_once(node: Path, copy: Path) -> None:
    rank_log(node).write(b"once\n")
    pieces = [*new_pieces(node, RUN, {})]
    mirror = LogMirror(copy, "0-0", LIMITS)
    mirror.write(pieces)
    mirror.write(pieces)
    assert mirrored(copy) == b"once\n"


def test_a_manager_that_was_killed_in_the_middle_of_a_piece_takes_it_again(
    node: Path, copy: Path
) -> None:
    log = rank_log(node)
    log.write(b"one\n")
    before = LogMirror(copy, "0-0", LIMITS)
    before.write(new_pieces(node, RUN, {}))
    (copy / "rank-0.log").write_bytes(b"one\ntw")  # not noted any more
    log.write(b"two\n")
    after = LogMirror(copy, "0-0", LIMITS)
    after.write(new_pieces(node, RUN, dict(after.places)))
    assert mirrored(copy) == b"one\ntwo\n"
