"""The native CSV: what each column means, and what a bad cell is told."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.model.job import Job
from trainmaster.model.placement import Role
from trainmaster.model.submission import Dependency, When
from trainmaster.model.trace import Outcome, Trace, TracedJob, TraceError
from trainmaster.model.units import GIB
from trainmaster.traces import formats, native
from trainmaster.traces.csv_reader import demand_for

HEADER = "job_id,submit_s,gpus,duration_s"


def only_job(path: Path) -> TracedJob:
    (traced,) = native.read(path).jobs
    return traced


def test_the_required_columns_alone_make_a_plain_job(write):
    traced = only_job(write(f"{HEADER}\na,1.5,8,60\n"))
    assert traced == TracedJob(Job("a", 1500, demand_for(8)), 60_000)
    assert traced.job.queue == "default"


def test_every_optional_column_reaches_its_field(write):
    traced = only_job(
        write(
            f"{HEADER},queue,user,app,model,class,min_gpus,max_gpus,gpu_share,gpu_memory_gib,"
            "gpu_util,iterations,status,failed_attempts_s,deadline_s,priority,gpu_type,"
            "stays_in_memory\n"
            "a,10,2,60,q,u,x,vgg19,opportunistic,1,4,0.5,1.5,0.25,100,killed,1;2.5;3,100,-7,H100,no\n"
        )
    )
    job = traced.job
    assert (job.queue, job.user, job.app, job.model) == ("q", "u", "x", "vgg19")
    assert job.role is Role.OPPORTUNISTIC
    assert (job.demand.min_count, job.demand.nominal.count, job.demand.max_count) == (1, 2, 4)
    assert (job.demand.nominal.share, job.demand.nominal.memory) == (500, 3 * GIB // 2)
    assert (job.gpu_util_ppm, job.iterations, job.priority) == (250_000, 100, -7)
    assert (job.deadline_ms, job.retries, job.demand.gpu_type) == (110_000, 3, "H100")
    assert traced.outcome is Outcome.CANCELLED
    assert traced.failed_attempts_ms == (1000, 2500, 3000)
    assert not traced.stays_in_memory


def test_empty_optional_cells_mean_the_default(write):
    traced = only_job(write(f"{HEADER},queue,gpu_share,status,deadline_s\na,0,1,5,,,,\n"))
    assert traced == TracedJob(Job("a", 0, demand_for(1)), 5000)


def test_utilisation_above_one_is_a_percentage(write):
    assert only_job(write(f"{HEADER},gpu_util\na,0,1,5,52.5\n")).job.gpu_util_ppm == 525_000


def test_jobs_with_equal_demands_share_one_object(write):
    first, second = native.read(write(f"{HEADER},user\na,0,4,5,x\nb,0,4,9,y\n")).jobs
    assert first.job.demand is second.job.demand


def test_a_job_may_end_at_once(write):
    assert only_job(write(f"{HEADER}\na,0,1,0\n")).service_ms == 0


def test_spreadsheets_may_have_been_at_it(write):
    traced = only_job(write(f"\ufeff{HEADER}\r\n\r\n a ,0, 4.0 ,5\r\n"))
    assert (traced.job.id, traced.job.demand.nominal.count) == ("a", 4)


def test_unsorted_jobs_are_sorted_stably_and_it_is_said(write):
    trace = native.read(write(f"{HEADER}\nc,5,1,1\na,0,1,1\nb,5,1,1\n"))
    assert [traced.job.id for traced in trace.jobs] == ["a", "c", "b"]
    assert trace.notes == ("trace.csv: submit times were not in order; the jobs were sorted.",)


def test_sorted_jobs_need_no_note(write):
    assert native.read(write(f"{HEADER}\na,0,1,1\nb,0,1,1\n")).notes == ()


class Bad(NamedTuple):
    text: str
    want: str


BAD = {
    "text for a number": Bad(
        f"{HEADER}\na,0,1,5\nb,0,1,abc\n", "line 3, column duration_s: 'abc' is not a number."
    ),
    "nothing for a number": Bad(
        f"{HEADER}\na,0,1,\n",
        "line 2, column duration_s: a value is missing, a number is expected.",
    ),
    "a negative duration": Bad(
        f"{HEADER}\na,0,1,-5\n", "line 2, column duration_s: -5 is negative."
    ),
    "a negative submit time": Bad(
        f"{HEADER}\na,-1,1,5\n", "line 2, column submit_s: -1 is negative."
    ),
    "not a number at all": Bad(
        f"{HEADER}\na,0,1,nan\n", "line 2, column duration_s: 'nan' is not a finite number."
    ),
    "an infinite time": Bad(
        f"{HEADER}\na,inf,1,1\n", "line 2, column submit_s: 'inf' is not a finite number."
    ),
    "longer than history": Bad(
        f"{HEADER}\na,0,1,1e13\n",
        "line 2, column duration_s: 1e13 is longer than 1000000000000 seconds.",
    ),
    "no GPUs": Bad(f"{HEADER}\na,0,0,5\n", "line 2, column gpus: 0 is less than 1."),
    "negative GPUs": Bad(f"{HEADER}\na,0,-2,5\n", "line 2, column gpus: -2 is less than 1."),
    "half a GPU without a share": Bad(
        f"{HEADER}\na,0,2.5,5\n", "line 2, column gpus: '2.5' is not a whole number."
    ),
    "a slip of the zero key": Bad(
        f"{HEADER}\na,0,80000000,5\n",
        "line 2, column gpus: 80000000 GPUs are more than any cluster has.",
    ),
    "bounds the wrong way round": Bad(
        f"{HEADER},min_gpus,max_gpus\na,0,4,5,8,2\n",
        "line 2, column min_gpus: 8 is more than max_gpus, 2.",
    ),
    "nominal below the minimum": Bad(
        f"{HEADER},min_gpus\na,0,4,5,8\n", "line 2, column min_gpus: 8 is more than gpus, 4."
    ),
    "nominal above the maximum": Bad(
        f"{HEADER},max_gpus\na,0,4,5,2\n", "line 2, column max_gpus: 2 is less than gpus, 4."
    ),
    "a share of more than a GPU": Bad(
        f"{HEADER},gpu_share\na,0,1,5,1.5\n",
        "line 2, column gpu_share: 1.5 is not a fraction of one GPU, more than 0 and at most 1.",
    ),
    "negative memory": Bad(
        f"{HEADER},gpu_memory_gib\na,0,1,5,-1\n", "line 2, column gpu_memory_gib: -1 is negative."
    ),
    "more than busy": Bad(
        f"{HEADER},gpu_util\na,0,1,5,101\n",
        "line 2, column gpu_util: 101 is neither a part from 0 to 1 nor a percentage up to 100.",
    ),
    "an unknown class": Bad(
        f"{HEADER},class\na,0,1,5,royal\n",
        "line 2, column class: 'royal' is none of guaranteed, opportunistic.",
    ),
    "an unknown status": Bad(
        f"{HEADER},status\na,0,1,5,lost\n",
        "line 2, column status: 'lost' is none of passed, killed, failed.",
    ),
    "a bad attempt": Bad(
        f"{HEADER},failed_attempts_s\na,0,1,5,3;x\n",
        "line 2, column failed_attempts_s: 'x' is not a number.",
    ),
    "the same id twice": Bad(
        f"{HEADER}\na,0,1,5\nb,0,1,5\na,9,1,5\n", "line 4, column job_id: 'a' is already on line 2."
    ),
    "no id": Bad(f"{HEADER}\n ,0,1,5\n", "line 2, column job_id: the id is missing."),
    "a missing column": Bad(
        "job_id,submit_s,gpus\na,0,1\n", "line 1: the header has no column duration_s."
    ),
    "two missing columns": Bad(
        "job_id,gpus\n", "line 1: the header has no columns submit_s, duration_s."
    ),
    "a column twice": Bad(f"{HEADER},gpus\n", "line 1: column 'gpus' is there twice."),
    "a short row": Bad(f"{HEADER}\na,0,1\n", "line 2: the row has 3 fields, 4 are expected."),
    "an open quote": Bad(f'{HEADER}\n"a,0,1,5\n', "line 2: unexpected end of data."),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_a_bad_file_gets_one_sentence_with_its_place(case, write):
    path = write(case.text)
    with pytest.raises(TraceError) as caught:
        native.read(path)
    assert str(caught.value) == f"{path} {case.want}"


def test_an_empty_file_and_one_without_jobs(write):
    for text, want in (("", "is empty."), (f"{HEADER}\n", "holds no jobs.")):
        path = write(text)
        with pytest.raises(TraceError) as caught:
            native.read(path)
        assert str(caught.value) == f"{path} {want}"


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(TraceError, match=r"gone\.csv cannot be read: no such file or directory\."):
        native.read(tmp_path / "gone.csv")
    with pytest.raises(TraceError, match=r"cannot be read: is a directory\."):
        native.read(tmp_path)


def test_a_file_that_is_not_utf_8(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes(HEADER.encode() + b"\n\xe9t\xe9,0,1,5\n")
    with pytest.raises(TraceError, match="is not UTF-8 text; save it as UTF-8 and try again"):
        native.read(path)


def test_unknown_columns_are_ignored_by_reading_and_kept_by_converting(write):
    path = write(f'{HEADER},colour,queue,note\nb,5,1,1,red,q,\na,0,1,1,,,"x, y"\n')
    out = io.StringIO()
    trace = formats.convert(path, out)
    assert [traced.job.id for traced in trace.jobs] == ["a", "b"]
    assert out.getvalue() == f'{HEADER},queue,colour,note\na,0,1,1,,,"x, y"\nb,5,1,1,q,red,\n'


def test_saving_is_all_or_nothing(tmp_path):
    trace = Trace(jobs=(TracedJob(Job("a", 1, demand_for(1)), 1001),))
    native.save(trace, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == f"{HEADER}\na,0.001,1,1.001\n"
    with pytest.raises(TraceError, match="cannot be written: no such file or directory"):
        native.save(trace, tmp_path / "nowhere" / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Z")), max_size=8)
TIMES = st.integers(0, 10**14)


@st.composite
def traced_jobs(draw, job_id):
    count = draw(st.integers(1, 64))
    submit = draw(TIMES)
    failed = tuple(draw(st.lists(TIMES, max_size=4)))
    demand = demand_for(
        count,
        draw(st.integers(1, 1000)),
        draw(st.integers(0, 80 * GIB)),
        draw(st.integers(1, count)),
        draw(st.integers(count, 99)),
        draw(WORDS) or None,
    )
    job = Job(
        id=job_id,
        submit_ms=submit,
        demand=demand,
        queue=draw(WORDS) or "default",
        user=draw(WORDS),
        app=draw(WORDS),
        model=draw(WORDS),
        role=draw(st.sampled_from(Role)),
        priority=draw(st.integers(-9, 9)),
        gpu_util_ppm=draw(st.none() | st.integers(0, 1_000_000)),
        retries=max(2, len(failed)),
        deadline_ms=draw(st.none() | TIMES.map(lambda ms: submit + ms)),
        iterations=draw(st.none() | st.integers(0, 10**9)),
    )
    return TracedJob(job, draw(TIMES), draw(st.sampled_from(Outcome)), failed)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True).flatmap(
        lambda ids: st.tuples(*(traced_jobs(f"job {n}") for n in ids))
    )
)
def test_what_is_written_is_read_back(tmp_path_factory, jobs):
    trace = Trace(jobs=tuple(sorted(jobs, key=lambda traced: traced.job.submit_ms)))
    path = tmp_path_factory.mktemp("round") / "trace.csv"
    native.save(trace, path)
    assert native.read(path) == trace


def test_reasons_of_failures_are_read_and_written(tmp_path: Path) -> None:
    lines = (
        "job_id,submit_s,gpus,duration_s,status,failed_attempts_s,failure_reasons,bad_input\n"
        "a,0,1,60,failed,30,missing-file;missing-file,/data/x\n"
        "b,1,1,60,,30,mpi-error,\n"
        "c,2,1,60,,,,\n"
    )
    path = tmp_path / "t.csv"
    path.write_text(lines)
    trace = native.read(path)
    assert [each.failure_reasons for each in trace.jobs] == [
        ("missing-file", "missing-file"),
        ("mpi-error",),
        (),
    ]
    assert trace.jobs[0].bad_input == "/data/x"
    out = io.StringIO()
    native.write(trace, out)
    assert out.getvalue() == lines
    path.write_text(lines.replace("mpi-error", "mpi-error;mpi-error"))
    with pytest.raises(
        TraceError, match=r"line 3, column failure_reasons: 2 reasons, but it fails 1"
    ):
        native.read(path)


def test_dependencies_and_arrays_are_read_and_written(write):
    text = (
        f"{HEADER},preemptible,depends_on,array,array_limit\n"
        "a,0,1,5,no,,,\n"
        "b:c,1,1,5,,a:any,,\n"
        "s_0,2,1,5,,a;b:c;b:c:fail,s,3\n"
    )
    a, b, s = native.read(write(text)).jobs
    assert (a.job.preemptible, b.job.preemptible) == (False, True)
    assert b.depends_on == (Dependency("a", When.ANY),)
    assert s.depends_on == (Dependency("a"), Dependency("b:c"), Dependency("b:c", When.FAIL))
    assert (s.array, s.array_limit) == ("s", 3)
    out = io.StringIO()
    native.write(Trace((a, b, s)), out)
    assert native.read(write(out.getvalue())).jobs == (a, b, s)


PIECES = st.lists(st.sampled_from(("a", ":", "any", "ok", "fail")), min_size=1, max_size=4)


@given(PIECES.map("".join), st.sampled_from(When))
def test_a_dependency_is_read_back_whatever_colons_its_id_has(tmp_path_factory, id, when):
    plain = [TracedJob(Job(each, 0, demand_for(1)), 5) for each in (id, "z")]
    trace = Trace((plain[0], replace(plain[1], depends_on=(Dependency(id, when),))))
    path = tmp_path_factory.mktemp("round") / "trace.csv"
    native.save(trace, path)
    assert native.read(path).jobs[1].depends_on == (Dependency(id, when),)


def test_a_dependency_that_cannot_be_written_is_refused(tmp_path):
    job = TracedJob(Job("a", 0, demand_for(1)), 5)
    after = replace(job, job=Job("b", 1, demand_for(1)), depends_on=(Dependency("x;y"),))
    for write in (
        lambda trace: native.write(trace, io.StringIO()),
        lambda trace: native.save(trace, tmp_path / "out.csv"),
    ):
        with pytest.raises(
            TraceError, match="'b' depends on 'x;y', which the native format cannot"
        ):
            write(Trace((job, after)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wanted", ["z", "b", "a"])
def test_a_job_depends_on_earlier_jobs_alone(write, wanted):
    with pytest.raises(TraceError, match=f"'a' depends on '{wanted}', and no job of that id"):
        native.read(write(f"{HEADER},depends_on\na,0,1,5,{wanted}\nb,1,1,5,\n"))
