"""A manager that reads the journal of a gang has the same gang."""

from __future__ import annotations

from pathlib import Path

from trainmaster.engines.ray.gang import Gang, Part, numbered, resizing_in_place
from trainmaster.engines.ray.gang_journal import GangJournal, Launched
from trainmaster.engines.ray.gang_parts import Meeting, Reservation
from trainmaster.model.engine_reports import CanResize, Report, Reshaped, ResizeReady, Started
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
