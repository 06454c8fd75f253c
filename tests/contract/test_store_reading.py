"""What every store answers: SQLite and PostgreSQL, the same suite."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.stores import JOB, batch, job, report, step
from trainmaster.store.errors import StoreError
from trainmaster.store.open import open_store
from trainmaster.store.rows import (
    Batch,
    ChargeRow,
    FailedRunRow,
    JobFilter,
    StepRow,
    StoredJob,
    StoredProgress,
    StoryRow,
)
from trainmaster.store.store import Store

# -- reading ---------------------------------------------------------------------------------------


def test_nothing_is_there_before_anybody_led(opened: Callable[[], Store]) -> None:
    with pytest.raises(StoreError, match="start `trainmaster up` with it once"):
        opened().count()


def test_an_empty_store(store: Store) -> None:
    assert store.steps() == []
    assert store.jobs(JobFilter()) == []
    assert store.job("1") is None
    assert store.last_number() == 0
    assert store.count() == {}
    assert store.story("1") == []
    assert store.progress("1") == []
    assert store.key("k") is None


def test_others_read_what_the_leader_wrote(store: Store, opened: Callable[[], Store]) -> None:
    other = opened()
    assert other.count() == {}
    store.append([batch(1, JOB)])
    assert other.job("1") == JOB
    assert other.steps() == [step(1)]
    store.close()
    assert other.job("1") == JOB


def test_last_number_counts_elements_and_skips_names(store: Store) -> None:
    store.append([batch(1, job("9"), job("12_3"), job("x99"), job("10"))])
    assert store.last_number() == 12


def test_failed_runs_by_time_user_and_queue(store: Store) -> None:
    old, new = job("1", submit_ms=1000, name="old"), replace(job("2", submit_ms=2000), user="bob")
    store.append([batch(1, old, new)])
    told = [
        StoryRow(id, 20, 2, what, detail)
        for id, what, detail in (
            ("1", "failed", "{1}"),
            ("2", "lost", "{2}"),
            ("2", "saved", "{3}"),
        )
    ]
    store.append([Batch(step(2), (), tuple(told))])
    kinds = ("failed", "lost")
    assert store.failed_runs(kinds) == [
        FailedRunRow("1", "ann", "old", "{1}"),
        FailedRunRow("2", "bob", "train", "{2}"),
    ]
    assert [row.job for row in store.failed_runs(kinds, since_ms=1500)] == ["2"]
    assert [row.job for row in store.failed_runs(kinds, user="ann")] == ["1"]
    assert store.failed_runs(kinds, queue="other") == []


FOUND = {
    "all": (JobFilter(), "6 5 4_1 4_0 2 1"),
    "one state": (JobFilter(states=frozenset({"running"})), "5 2"),
    "two states": (JobFilter(states=frozenset({"running", "failed"})), "6 5 2"),
    "a state that nothing is in": (JobFilter(states=frozenset({"suspended"})), ""),
    "a user": (JobFilter(user="bob"), "6 5"),
    "a queue": (JobFilter(queue="night"), "2"),
    "an array": (JobFilter(array="4"), "4_1 4_0"),
    "part of a name": (JobFilter(text="bert"), "5 1"),
    "a name in another case": (JobFilter(text="äRGER"), "6"),
    "an id": (JobFilter(text="4_"), "4_1 4_0"),
    "text with a wildcard": (JobFilter(text="%"), "2"),
    "since": (JobFilter(since_ms=400), "6 5 4_1 4_0"),
    "several at once": (JobFilter(user="bob", states=frozenset({"running"}), text="b"), "5"),
    "a limit": (JobFilter(limit=2), "6 5"),
    "no limit left": (JobFilter(limit=0), ""),
    "a later page": (JobFilter(before="4_1", limit=2), "4_0 2"),
    "after the last": (JobFilter(before="1"), ""),
    "after one that is not there": (JobFilter(before="77"), ""),
    "after one that is not among them": (JobFilter(before="4_0", user="ann"), "2 1"),
}


@pytest.mark.parametrize(("wanted", "ids"), FOUND.values(), ids=FOUND.keys())
def test_jobs_that_are_wanted(store: Store, wanted: JobFilter, ids: str) -> None:
    element = replace(job("4_0", "succeeded", 400, "sweep"), array="4", array_index=0)
    store.append(
        [
            batch(1, job("1", "pending", 100, "BERT-large"), element),
            batch(2, replace(job("2", "running", 200, "100%"), queue="night")),
            batch(3, replace(element, id="4_1", array_index=1)),
            batch(4, replace(job("5", "running", 500, "bert"), user="bob")),
            batch(5, replace(job("6", "failed", 600, "Ärger"), user="bob")),
        ]
    )
    assert [row.id for row in store.jobs(wanted)] == ids.split()


def test_pages_neither_skip_nor_repeat_while_jobs_come_in(store: Store) -> None:
    """Many are submitted in one millisecond: the time alone would not tell where a page ended."""
    store.append([batch(1, *(job(str(n), submit_ms=1000 + n // 40) for n in range(1, 101)))])
    seen: list[str] = []
    before, seq = None, 1
    while page := store.jobs(JobFilter(before=before, limit=7)):
        seen += [row.id for row in page]
        before, seq = page[-1].id, seq + 1
        store.append([batch(seq, job(str(100 + seq), submit_ms=2000), replace(page[0], state="x"))])
    assert seen == [str(n) for n in range(100, 0, -1)]


def test_a_story_is_told_in_order(store: Store) -> None:
    told = [StoryRow("1", 10, 1, what, f'{{"nr": {n}}}') for n, what in enumerate("zaq")]
    store.append([Batch(step(1), (JOB, job("2")), (*told[:2], replace(told[0], job="2"), told[2]))])
    later = StoryRow("1", 5, 2, "ended", "{}")  # the clock went back: the order stays
    store.append([Batch(step(2), stories=(later,))])
    assert store.story("1") == [*told, later]
    assert store.story("2") == [replace(told[0], job="2")]


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (1000, range(10)),
        (10, range(10)),
        (9, (0, 2, 3, 4, 5, 6, 7, 8, 9)),
        (4, (0, 3, 6, 9)),
        (3, (0, 5, 9)),
        (2, (0, 9)),
        (1, (9,)),
        (0, ()),
    ],
)
def test_progress_is_thinned_evenly(store: Store, limit: int, kept: tuple[int, ...]) -> None:
    reports = [report("1", number) for number in range(10)]
    store.append([Batch(step(1), (JOB, job("2")), progress=(*reports, report("2", 77)))])
    assert store.progress("1", limit) == [reports[number] for number in kept]
    assert store.progress("2", max(1, limit)) == [report("2", 77)]


def test_a_loss_that_is_no_number_is_kept(store: Store) -> None:
    odd = [(math.nan, math.inf), (-math.inf, None), (None, 5e-324)]
    rows = tuple(StoredProgress("1", 1, 1, loss, speed) for loss, speed in odd)
    store.append([Batch(step(1), (JOB,), progress=rows)])
    assert repr(store.progress("1")) == repr(list(rows))


def test_threads_read_while_the_leader_writes(store: Store) -> None:
    store.append([batch(1, job("1"))])
    with ThreadPoolExecutor(8) as threads:

        def look(_: int) -> bool:
            seen = {row.id for row in store.jobs(JobFilter(limit=1000))}
            return seen <= {row.job for id in seen for row in store.story(id)}

        looks = threads.map(look, range(60))
        standings = [threads.submit(store.is_leader) for _ in range(20)]
        for seq in range(2, 40):
            store.append([batch(seq, job(str(seq)))])
        assert all(looks)
        assert all(standing.result() for standing in standings)
    assert len(store.steps()) == 39


def test_threads_write_one_after_the_other(store: Store) -> None:
    """Of many that want the same number one gets it, and the others are told."""

    def write(number: int) -> str | None:
        try:
            store.append([batch(1, job(str(number)))])
        except StoreError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(write, range(20)))
    assert answers.count(None) == 1
    assert len(store.jobs(JobFilter())) == 1
    assert store.is_leader()


# -- what was appended is what is read -------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
WHOLE = st.integers(-(2**63), 2**63 - 1)
FLOATS = (
    st.none()
    | st.sampled_from([math.nan, math.inf, -math.inf])
    | st.floats().map(lambda x: x + 0.0)
)
"""SQLite keeps no sign of zero, which is why 0.0 is added."""
IDS = st.integers(0, 6).map(str) | st.sampled_from(["1_0", "1_1", "3_2"])
JOBS = st.builds(
    StoredJob,
    id=IDS,
    name=TEXTS,
    user=TEXTS,
    queue=TEXTS,
    state=st.sampled_from(["pending", "running", "failed"]),
    submit_ms=WHOLE,
    start_ms=st.none() | WHOLE,
    finish_ms=st.none() | WHOLE,
    gpus=WHOLE,
    exit_code=st.none() | WHOLE,
    array=st.none() | TEXTS,
    array_index=st.none() | WHOLE,
    spec_json=TEXTS,
    record_json=TEXTS,
)
STORIES = st.builds(StoryRow, job=IDS, at_ms=WHOLE, step=WHOLE, what=TEXTS, detail_json=TEXTS)
REPORTS = st.builds(
    StoredProgress, job=IDS, at_ms=WHOLE, step=WHOLE, loss=FLOATS, samples_per_s=FLOATS
)
BATCHES = st.tuples(
    st.lists(JOBS, max_size=4), st.lists(STORIES, max_size=4), st.lists(REPORTS, max_size=4)
)


def named(id: str, example: int) -> str:
    """Ids of an example of its own: all of them go to one store."""
    return f"{example}{int(id.partition('_')[0]):02}{''.join(id.partition('_')[1:])}"


def test_what_was_appended_is_what_is_read(store_url: str) -> None:
    last = {"example": 0, "seq": 0}

    with closing(open_store(store_url)) as store:
        assert store.acquire_leadership()

        @settings(max_examples=30, deadline=None)
        @given(appends=st.lists(st.lists(BATCHES, max_size=3), max_size=3))
        def check(
            appends: list[list[tuple[list[StoredJob], list[StoryRow], list[StoredProgress]]]],
        ) -> None:
            last["example"] += 1
            example, first = last["example"], last["seq"]
            jobs: dict[str, StoredJob] = {}
            steps: list[StepRow] = []
            stories: list[StoryRow] = []
            reports: list[StoredProgress] = []
            for append in appends:
                batches = []
                for new_jobs, new_stories, new_reports in append:
                    last["seq"] += 1
                    steps.append(step(last["seq"]))
                    changed = [replace(row, id=named(row.id, example)) for row in new_jobs]
                    jobs |= {row.id: row for row in changed}
                    told = [replace(row, job=named(row.job, example)) for row in new_stories]
                    told = [row for row in told if row.job in jobs]
                    seen = [replace(row, job=named(row.job, example)) for row in new_reports]
                    seen = [row for row in seen if row.job in jobs]
                    stories += told
                    reports += seen
                    batches.append(Batch(steps[-1], tuple(changed), tuple(told), tuple(seen)))
                store.append(batches)
            assert store.steps(after=first) == steps
            for id, row in jobs.items():
                assert store.job(id) == row
                assert store.story(id) == [told for told in stories if told.job == id]
                expected = [seen for seen in reports if seen.job == id]
                assert repr(store.progress(id)) == repr(expected)
            listed = [row for row in store.jobs(JobFilter(limit=10**9)) if row.id in jobs]
            assert {row.id: row for row in listed} == jobs
            assert [row.submit_ms for row in listed] == sorted(
                (row.submit_ms for row in listed), reverse=True
            )

        check()


def test_a_list_may_leave_the_job_files_out(store: Store) -> None:
    store.append([batch(1, job("1", state="running"), job("2"))])
    whole, brief = store.jobs(JobFilter()), store.jobs(JobFilter(is_brief=True))
    assert [replace(row, spec_json="") for row in whole] == list(brief)
    states = frozenset({"running"})
    assert [row.spec_json for row in store.jobs(JobFilter(states=states, is_brief=True))] == [""]


def test_a_job_is_found_by_its_exact_name_however_many_contain_it(store: Store) -> None:
    rows = [
        replace(job(str(n)), name="train" if n in (1, 2) else f"train-{n}") for n in range(1, 1200)
    ]
    store.append([batch(1, *rows)])
    found = store.named("train")
    assert found is not None
    assert found.id == "2"
    assert store.named("TRAIN") is None
    assert store.named("trai") is None


def test_the_newest_of_each_program_are_found_however_many_others_have_run(store: Store) -> None:
    runs = [("a", 4), ("b", 2), ("b", 9), ("c", 3), ("c", 5), ("c", 7), (None, 1), (None, 8)]
    rows = [
        replace(job(str(number), "succeeded", number * 100), program=program)
        for program, number in runs
    ]
    failed = replace(job("6", "failed", 600), program="a")
    store.append([batch(1, *rows, failed)])

    def found(most: int, in_all: int) -> str:
        return " ".join(row.id for row in store.newest_of_each_program("succeeded", most, in_all))

    assert found(2, 99) == "9 8 7 5 4 2 1"  # of unknown programs all
    assert found(1, 99) == "9 8 7 4 1"
    assert found(1, 3) == "9 8 7"
    assert found(2, 4) == "9 8 7 4"  # the newest of each before a second one
    (first, *_) = store.newest_of_each_program("succeeded", 1, 1)
    assert first == rows[2]


# -- what the dashboard shows ----------------------------------------------------------------------


def element(array: str, index: int, state: str = "pending") -> StoredJob:
    return replace(job(f"{array}_{index}", state), array=array, array_index=index)


def ids(store: Store, **wanted: object) -> list[str]:
    return [row.id for row in store.jobs(JobFilter(is_folded=True, **wanted))]  # type: ignore[arg-type]


def test_of_a_folded_array_the_last_job_that_matches_is_listed(store: Store) -> None:
    array = [element("2", 0, "running"), *(element("2", each) for each in (1, 2, 11))]
    store.append([batch(1, job("1"), *array, job("3", "running"))])
    assert ids(store) == ["3", "2_11", "1"]
    assert ids(store, states=frozenset({"running"})) == ["3", "2_0"]
    assert ids(store, text="2_1") == ["2_11"]
    assert ids(store, limit=2) == ["3", "2_11"]
    assert ids(store, before="2_11") == ["1"]
    assert store.array_states(["2"]) == {"2": {"pending": 3, "running": 1}}
    assert store.array_states([]) == {}


def charge(job: str, from_ms: int, to_ms: int, devices: str | None, lost: int = 0) -> ChargeRow:
    row = ChargeRow(job, "ada", "default", "gpu", from_ms, to_ms, 5, lost, None, "EUR")
    return replace(row, attempt=1, devices=devices, ended="suspended")


def test_spans_are_found_by_time_and_node(store: Store) -> None:
    charges = (
        charge("1", 0, 10, "\nn1:0,1\nn2:3"),
        charge("1", 10, 20, "\nn11:0", lost=7),
        charge("1", 20, 20, "\nn1:0"),
        charge("1", 20, 30, None),
    )
    store.append([replace(batch(1, job("1")), charges=charges)])

    def found(since_ms: int, until_ms: int, *nodes: str) -> list[tuple[int, int]]:
        rows = store.spans(since_ms, until_ms, nodes, 10)
        assert {(row.name, row.user, row.ended) for row in rows} <= {("train", "ada", "suspended")}
        return [(row.from_ms, row.to_ms) for row in rows]

    assert found(0, 100) == [(10, 20), (0, 10)]
    assert found(0, 100, "n1") == [(0, 10)]
    assert found(0, 100, "n2", "n11") == [(10, 20), (0, 10)]
    assert found(0, 100, "n_") == []
    assert found(15, 100) == [(10, 20)]
    assert found(0, 5) == [(0, 10)]
    assert len(store.spans(0, 100, (), 1)) == 1
    assert (store.lost_gpu_ms(0), store.lost_gpu_ms(21), store.lost_gpu_ms(0, "bob")) == (7, 0, 0)


def test_the_newest_failed_runs_come_first(store: Store) -> None:
    stories = tuple(
        StoryRow("1", at_ms, 1, what, f'{{"at": {at_ms}}}')
        for at_ms, what in ((10, "failed"), (20, "started"), (30, "lost"), (40, "failed"))
    )
    store.append([replace(batch(1, job("1")), stories=stories)])
    found = store.newest_failed_runs(("failed", "lost"), 20, 10)
    assert [(row.at_ms, row.user, row.name) for row in found] == [
        (40, "ann", "train"),
        (30, "ann", "train"),
    ]
    assert len(store.newest_failed_runs(("failed", "lost"), 0, 1)) == 1


def test_charges_are_also_read_a_few_at_a_time(store: Store) -> None:
    ends = (10, 20, 20, 20, 15, 30, 20, 5, 40)
    charges = tuple(charge("1", number, end, None) for number, end in enumerate(ends))
    others = replace(charge("1", 0, 20, None), user="bob", queue="vision")
    store.append([replace(batch(1, job("1")), charges=(*charges, others))])
    for at_once in (1, 2, 3, 10, 11):
        rows = list(store.each_charge(10, 7, at_once=at_once))
        assert [row.to_ms for row in rows] == [10, 15, *[20] * 5, 30]
        assert sorted(rows, key=repr) == sorted(store.charges(10, 7), key=repr)
    assert list(store.each_charge(10, 7, "bob", "vision", at_once=1)) == [others]
    assert list(store.each_charge(10, 7, "bob", "default")) == []
