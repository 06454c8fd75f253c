"""A manager that reads the journal of a gang has the same gang."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from pathlib import Path

import pytest

from trainmaster.engines.ray.gang import Gang, Part, numbered, resizing_in_place
from trainmaster.engines.ray.gang_journal import GangJournal, Launched
from trainmaster.engines.ray.gang_parts import Meeting, Reservation
from trainmaster.model.engine_reports import (
    CanResize,
    Ended,
    HeedsStops,
    Lost,
    Progressed,
    Report,
    Reshaped,
    ResizeReady,
    Started,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LogLimits

RUN, NOW = Run("12", 1), 1000
FIRST = Launched(Meeting("n0", 4), "one", 5, LogLimits(10, 1), Reservation({"n0": 1000}, {}))
THEN = Launched(Meeting("n1", 5), "two", 5, LogLimits(10, 1), Reservation({"n1": 2000}, {}))
SAID: tuple[tuple[int, int, Report], ...] = (
    (0, 1, Started(RUN, NOW, (10,))),
    (0, 2, CanResize(RUN, NOW)),
    (1, 1, Started(RUN, NOW, (20,))),
    (1, 2, ResizeReady(RUN, NOW, 1)),
    (0, 3, ResizeReady(RUN, NOW, 1)),
    (0, 4, Reshaped(RUN, NOW, (10,), in_place=True, numbers=(0,))),
    (1, 3, Reshaped(RUN, NOW, (20,), in_place=True, numbers=(1,))),
)


def test_a_resize_in_place_goes_on_where_it_was(tmp_path: Path) -> None:
    reports: list[tuple[Report, int]] = []

    def read() -> GangJournal:
        seen = reports[-1][1] if reports else 0
        return GangJournal(RUN, tmp_path, lambda report, n: reports.append((report, n)), seen)

    book = read()
    book.open("uuid")
    book.launch((Part("n0", 0, 1, devices=(3,)),), FIRST)
    for step, (index, number, report) in enumerate(SAID):
        if step == 2:
            assert book.gang is not None
            target = Part("n0", 0, 1, devices=(3,)), Part("n1", 1, 1, devices=(0,))
            book.resize_in_place(numbered(book.gang, target), THEN)
            assert book.launched is not None
            assert (book.launched.placement, book.next_placement) == ("one", "two")
            assert book.launched.meeting == Meeting("n1", 5)
        book.hear(index, number, report)
        asyncio.run(book.sync())
        before, launched = book.gang, book.launched
        if (
            book.gang is not None and book.gang.resize is not None
        ):  # parts that leave go on meanwhile
            assert book.held == Reservation({"n0": 1000, "n1": 2000}, {})
        held = book.held
        book.close()
        book = read()
        assert (book.gang, book.launched, book.held) == (before, launched, held)
    assert [type(report) for report, _ in reports] == [Started, Reshaped]
    assert book.launched == THEN
    assert book.held == THEN.held
    assert book.gang is not None
    assert (book.gang.shape, book.gang.generation, book.gang.world) == (1, 0, 2)
    book.close()


def test_reports_are_told_once_the_disk_has_them_which_the_loop_does_not_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Report] = []
    book = GangJournal(RUN, tmp_path, lambda report, n: told.append(report))
    is_free, has_begun = threading.Event(), threading.Event()

    def slow(file: int) -> None:
        has_begun.set()
        assert is_free.wait(60)

    async def act() -> None:
        book.open("uuid")
        book.launch((Part("n0", 0, 1),), FIRST)
        monkeypatch.setattr("trainmaster.engines.local.journal.os.fsync", slow)
        syncing = asyncio.create_task(book.sync())
        assert await asyncio.to_thread(has_begun.wait, 60)
        book.hear(0, 1, Started(RUN, NOW, (10,)))
        book.hear(0, 2, HeedsStops(RUN, NOW))
        assert (told, book.is_written) == ([], False)
        written = (tmp_path / "journal.jsonl").read_text()
        assert '"started"' in written, (
            "a manager that is killed now has said nothing, and stored it"
        )
        is_free.set()
        await syncing
        assert [type(report) for report in told] == [Started, HeedsStops]
        assert book.is_written
        book.hear(0, 3, Progressed(RUN, NOW, 7))
        assert isinstance(told[-1], Progressed), "what may be lost is told at once"

    asyncio.run(act())
    book.close()


def test_what_the_disk_refuses_is_told_once_it_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Report] = []
    book = GangJournal(RUN, tmp_path, lambda report, n: told.append(report))
    book.open("uuid")
    asyncio.run(book.sync())
    kept = (tmp_path / "journal.jsonl").read_text()

    def refuse(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("trainmaster.engines.local.journal.os.fsync", refuse)
        book.launch((Part("n0", 0, 1),), FIRST)
        book.hear(0, 1, Started(RUN, NOW, (10,)))
        asyncio.run(book.sync())
    assert (told, book.is_written) == ([], False)
    assert (tmp_path / "journal.jsonl").read_text() == kept
    asyncio.run(book.sync())
    assert ([type(report) for report in told], book.is_written) == ([Started], True)
    book.close()
    again = GangJournal(RUN, tmp_path, lambda report, n: None)
    assert again.gang == book.gang
    again.close()


def test_a_journal_whose_folder_was_removed_is_written_again(tmp_path: Path) -> None:
    folder, told = tmp_path / "run", list[Report]()
    book = GangJournal(RUN, folder, lambda report, n: told.append(report))
    book.open("uuid")
    book.launch((Part("n0", 0, 1),), FIRST)
    asyncio.run(book.sync())
    shutil.rmtree(folder)
    book.hear(0, 1, Started(RUN, NOW, (10,)))
    asyncio.run(book.sync())
    assert [type(report) for report in told] == [Started]
    book.close()
    again = GangJournal(RUN, folder, lambda report, n: None)
    assert again.gang == book.gang
    again.close()


def test_a_refusal_of_a_file_that_was_removed_meanwhile_leaves_the_new_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, told = tmp_path / "run", list[Report]()
    book = GangJournal(RUN, folder, lambda report, n: told.append(report))
    is_removed, has_begun = threading.Event(), threading.Event()

    def stale(file: int) -> None:
        has_begun.set()
        assert is_removed.wait(60)
        raise OSError(errno.ESTALE, "Stale file handle")

    async def act() -> None:
        book.open("uuid")
        await book.sync()
        for number in range(30):  # what comes after these begins far behind the new file's end
            book.note(Progressed(RUN, NOW, number))
        book.launch((Part("n0", 0, 1),), FIRST)
        with monkeypatch.context() as broken:
            broken.setattr("trainmaster.engines.local.journal.os.fsync", stale)
            syncing = asyncio.create_task(book.sync())
            assert await asyncio.to_thread(has_begun.wait, 60)
            shutil.rmtree(folder)
            book.hear(0, 1, Started(RUN, NOW, (10,)))
            written = (folder / "journal.jsonl").read_bytes()
            is_removed.set()
            await syncing
        assert (folder / "journal.jsonl").read_bytes() == written
        assert not [each for each in told if isinstance(each, Started)]
        await book.sync()

    asyncio.run(act())
    assert [type(each) for each in told if not isinstance(each, Progressed)] == [Started]
    book.close()
    again = GangJournal(RUN, folder, lambda report, n: None)
    assert (again.gang, again.gang is None) == (book.gang, False)
    again.close()


def test_what_can_be_neither_synced_nor_cut_off_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Report] = []
    book = GangJournal(RUN, tmp_path, lambda report, n: told.append(report))
    book.launch((Part("n0", 0, 1),), FIRST)
    asyncio.run(book.sync())

    def refuse(*_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("trainmaster.engines.local.journal.os.ftruncate", refuse)
        with monkeypatch.context() as worse:
            worse.setattr("trainmaster.engines.local.journal.os.fsync", refuse)
            book.hear(0, 1, Started(RUN, NOW, (10,)))
            asyncio.run(book.sync())
        asyncio.run(book.sync())  # this fsync would have nothing to do, and say so
        assert (told, book.is_written) == ([], False)
    asyncio.run(book.sync())
    assert ([type(report) for report in told], book.is_written) == ([Started], True)
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 2
    book.close()


def test_a_sync_without_free_file_descriptors_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Report] = []
    book = GangJournal(RUN, tmp_path, lambda report, n: told.append(report))
    book.launch((Part("n0", 0, 1),), FIRST)
    book.hear(0, 1, Started(RUN, NOW, (10,)))

    def refuse(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr("trainmaster.engines.local.journal.os.dup", refuse)
        asyncio.run(book.sync())
    assert (told, book.is_written) == ([], False)
    asyncio.run(book.sync())
    assert ([type(report) for report in told], book.is_written) == ([Started], True)
    book.close()


def test_a_run_ends_once(tmp_path: Path) -> None:
    told: list[Report] = []
    book = GangJournal(RUN, tmp_path, lambda report, n: told.append(report))
    book.open("uuid")
    book.conclude(Lost(RUN, NOW, "Nothing is left of it."))
    book.conclude(Ended(RUN, NOW, 0))
    asyncio.run(book.sync())
    assert [type(report) for report in told] == [Lost]
    book.close()


def test_a_journal_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    book = GangJournal(RUN, tmp_path, lambda report, n: None)
    book.open("uuid")
    book.launch((Part("n0", 0, 1),), FIRST)
    book.resize("two")
    book.launch((Part("n0", 0, 1), Part("n1", 1, 1)), THEN)
    book.close()
    file = tmp_path / "journal.jsonl"
    later = (', "devices": [[], []]', ', "numbers": [[], []]', ', "shape": 1')
    later += (', "devices": [[]]', ', "numbers": [[]]', ', "shape": 0')
    text = file.read_text()
    for each in later:
        assert each in text or each.replace(" ", "") in text
        text = text.replace(each, "").replace(each.replace(" ", ""), "")
    file.write_text(text)
    gang = GangJournal(RUN, tmp_path, lambda report, n: None).gang
    assert gang == Gang(
        RUN, (Part("n0", 0, 1, shape=1), Part("n1", 1, 1, shape=1)), generation=1, shape=1
    )
    assert resizing_in_place(gang, 2, (Part("n0", 0, 1),)).shape == 2
