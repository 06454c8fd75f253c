"""Reading output: the last lines, from a position, through rotation, bytes as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.api_service import MemoryService
from trainmaster.api import logs
from trainmaster.api.logs import Follower, Log

V1 = "/api/v1"


def files(folder: Path, *contents: bytes) -> list[Path]:
    paths = []
    for number, content in enumerate(contents):
        path = folder / f"out.{len(contents) - number}"
        path.write_bytes(content)
        paths.append(path)
    return paths


def tail(paths: list[Path], lines: int) -> bytes:
    log = Log(paths)
    return b"".join(log.pieces(log.tail_start(lines)))


@pytest.mark.parametrize(
    ("contents", "lines", "wanted"),
    [
        ((b"a\nb\nc\n",), 2, b"b\nc\n"),
        ((b"a\nb\nc",), 2, b"b\nc"),
        ((b"a\nb\nc\n",), 0, b""),
        ((b"a\nb\nc\n",), 9, b"a\nb\nc\n"),
        ((b"a\nb", b"b\nc\n"), 2, b"bb\nc\n"),
        ((b"a\n", b"", b"b\n"), 2, b"a\nb\n"),
        ((b"\n\n\n",), 2, b"\n\n"),
        ((b"",), 3, b""),
        ((), 3, b""),
    ],
)
def test_the_last_lines(
    tmp_path: Path, contents: tuple[bytes, ...], lines: int, wanted: bytes
) -> None:
    assert tail(files(tmp_path, *contents), lines) == wanted


def test_lines_longer_than_a_piece(tmp_path: Path) -> None:
    long = b"x" * (3 * logs.PIECE + 17)
    assert tail(files(tmp_path, b"first\n" + long + b"\n", b"last\n"), 2) == long + b"\nlast\n"


@given(
    st.lists(st.binary(max_size=40), max_size=4),
    st.integers(min_value=0, max_value=6),
    st.integers(min_value=1, max_value=7),
)
def test_tail_is_what_splitting_lines_gives(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], lines: int, piece: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    paths = files(folder, *contents)
    whole = b"".join(contents)
    split = whole.split(b"\n")
    kept = [each + b"\n" for each in split[:-1]] + ([split[-1]] if split[-1] else [])
    before = logs.PIECE
    try:
        logs.PIECE = piece
        assert (
            tail(paths, lines)
            == b"".join(kept[len(kept) - lines :] if lines < len(kept) else kept)[
                0 if lines else len(whole) :
            ]
        )
    finally:
        logs.PIECE = before


def test_a_log_that_is_being_rotated_is_read_to_the_end(tmp_path: Path) -> None:
    paths = files(tmp_path, b"old\n", b"new\n")
    log = Log([*paths, tmp_path / "missing"])
    paths[0].unlink()
    paths[1].rename(tmp_path / "elsewhere")
    assert b"".join(log.pieces(2)) == b"d\nnew\n"


def test_a_follower_goes_through_rotation(tmp_path: Path) -> None:
    base, older = tmp_path / "log", tmp_path / "log.1"
    paths = [older, base]
    follower = Follower()
    assert follower.read(paths) == b""
    base.write_bytes(b"one ")
    assert follower.read(paths) == b"one "
    assert follower.read(paths) == b""
    with base.open("ab") as file:
        file.write(b"two ")
        base.rename(older)
        base.write_bytes(b"four ")
        file.write(b"three ")
        file.flush()
    read = [follower.read(paths) for _ in range(4)]
    assert b"".join(read) == b"two three four "
    base.rename(older)  # The file that it reads is now the older one, and the other is gone.
    base.write_bytes(b"five")
    assert b"".join(follower.read(paths) for _ in range(3)) == b"five"
    place = follower.place
    assert place is not None
    with base.open("ab") as file:
        file.write(b" six")
    other = Follower()
    assert other.go_to(paths, place)
    assert other.read(paths) == b" six"
    assert not other.go_to(paths, (0, 0))
    follower.close()
    other.close()


def test_output_is_served_as_it_was_written(client: TestClient, service: MemoryService) -> None:
    client.post(f"{V1}/jobs", json={"command": "x", "gpus": 2})
    empty = client.get(f"{V1}/jobs/1/logs")
    assert (empty.status_code, empty.content) == (200, b"")
    service.write("1", b"a\nb\n\xff\x00\r")
    service.rotate("1")
    service.write("1", "späte Zeile\n".encode())
    service.write("1", b"rank one\n", rank=1)
    whole = client.get(f"{V1}/jobs/1/logs")
    assert whole.content == b"a\nb\n\xff\x00\r" + "späte Zeile\n".encode()
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert client.get(f"{V1}/jobs/1/logs?rank=1").content == b"rank one\n"
    assert (
        client.get(f"{V1}/jobs/1/logs?tail=1").content == b"\xff\x00\r" + "späte Zeile\n".encode()
    )
    size = int(whole.headers["x-log-bytes"])
    service.write("1", b"more\n")
    assert client.get(f"{V1}/jobs/1/logs", params={"from": size}).content == b"more\n"
    assert client.get(f"{V1}/jobs/1/logs", params={"from": 10**9}).content == b""


def test_why_there_is_no_output_is_said(client: TestClient, service: MemoryService) -> None:
    client.post(f"{V1}/jobs", json={"command": "x"})
    service.no_output["1"] = "It was not in the backup."
    for query in ("", "?follow=true", "?tail=3"):
        answer = client.get(f"{V1}/jobs/1/logs{query}")
        assert answer.status_code == 404
        assert answer.json()["error"]["sentence"] == "It was not in the backup."


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("rank=7", 404, "Job 1 has no rank 7: it has 1, from 0 on."),
        ("attempt=3", 404, "Job 1 has no attempt 3: there is 1."),
        ("rank=all", 422, "rank=all needs follow=true"),
        ("tail=1&from=1", 422, "Give tail or from, not both."),
        ("rank=x", 422, "rank"),
    ],
)
def test_output_that_is_not_there(client: TestClient, query: str, status: int, said: str) -> None:
    client.post(f"{V1}/jobs", json={"command": "x"})
    answer = client.get(f"{V1}/jobs/1/logs?{query}")
    assert answer.status_code == status
    assert said in answer.json()["error"]["sentence"]
