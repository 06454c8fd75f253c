"""What a report consists of, and that it is written whole or not at all."""

from __future__ import annotations

import csv
import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.model.result import Result
from trainmaster.report import atomic_write as publish
from trainmaster.report.atomic_write import ReportError, ReportFile
from trainmaster.report.page import report_files, write_report
from trainmaster.report.policy_run import name_runs

PNG = b"\x89PNG"
DRAWN = {
    *("jct_cdf", "jct_bars", "jct_by_size", "rho_cdf", "delays"),
    *("utilisation", "queue_length", "fragmentation"),
    *(f"gantt-{policy}" for policy in ("fifo", "srtf", "tiresias-l")),
}
EXPECTED = {
    *(f"{name}.{kind}" for name in DRAWN for kind in ("svg", "pdf")),
    *("index.html", "summary.csv", "queues.csv", "jct_cdf.csv", "jct_cdf.png", "jct_bars.png"),
    *("jct_by_size.csv", "jct_by_size.png", "rho_cdf.csv", "rho_cdf.png"),
    *("delays.csv", "delays.png", "utilisation.csv", "utilisation.png"),
    *("queue_length.csv", "queue_length.png", "fragmentation.csv", "fragmentation.png"),
    *(f"jobs-{policy}.csv" for policy in ("fifo", "srtf", "tiresias-l")),
    *(
        f"gantt-{policy}.{kind}"
        for policy in ("fifo", "srtf", "tiresias-l")
        for kind in ("png", "csv")
    ),
}


def write(results: Sequence[Result], directory: Path) -> Path:
    return write_report(results, directory, title="Three policies", trace_name="toy.csv")


@pytest.fixture(scope="module")
def report(three_policies: tuple[Result, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = write(three_policies, tmp_path_factory.mktemp("out") / "deep" / "report")
    return page.parent


def test_all_files_are_there_and_nothing_else(report: Path) -> None:
    assert {path.name for path in report.iterdir()} == EXPECTED
    assert [path.name for path in report.parent.iterdir()] == ["report"]


def test_images_are_what_their_names_say(report: Path) -> None:
    assert all(path.read_bytes().startswith(PNG) for path in report.glob("*.png"))
    assert all(path.read_bytes().startswith(b"%PDF") for path in report.glob("*.pdf"))
    assert all(b"<svg " in path.read_bytes() for path in report.glob("*.svg"))


def test_drawings_have_no_date_and_no_colours_by_name(report: Path) -> None:
    for path in report.glob("*.pdf"):
        assert b"CreationDate" not in path.read_bytes()
    for path in report.glob("*.svg"):
        assert b"<dc:date>" not in path.read_bytes()
        assert b"var(--" not in path.read_bytes()


def test_job_files_hold_the_contract_s_fields(
    report: Path, three_policies: tuple[Result, ...]
) -> None:
    with (report / "jobs-fifo.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    job = three_policies[0].jobs[0]
    assert list(rows[0]) == [
        *("job_id", "submit_s", "start_s", "finish_s", "jct_s", "queue_s", "suspended_s", "gpu_s"),
        *("preemptions", "migrations", "status", "cost", "cost_wasted"),
    ]
    assert len(rows) == len(three_policies[0].jobs)
    assert rows[0]["job_id"] == job.job_id
    assert float(rows[0]["jct_s"]) == (job.jct_ms or 0) / 1_000
    assert float(rows[0]["gpu_s"]) == pytest.approx(job.held / 1e6, abs=0.0005)


def test_summary_has_a_row_per_policy(report: Path, three_policies: tuple[Result, ...]) -> None:
    with (report / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["policy"] for row in rows] == ["fifo", "srtf", "tiresias-l"]
    assert rows[0]["avg_jct_lower_bound_s"] == ""
    best = three_policies[1].summary.avg_jct_s
    assert best is not None
    assert float(rows[1]["avg_jct_s"]) == pytest.approx(best, abs=0.0005)


def test_the_same_results_give_the_same_bytes(
    report: Path, three_policies: tuple[Result, ...]
) -> None:
    for file in report_files(three_policies, "Three policies", "toy.csv"):
        assert file.content == (report / file.name).read_bytes(), file.name


def documents(*names: str) -> list[ReportFile]:
    return [ReportFile(name, f"new {name}".encode()) for name in names]


def test_an_existing_directory_keeps_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "index.html").write_text("old")
    publish.publish(documents("a.csv", "index.html"), tmp_path)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"notes.txt": "mine", "a.csv": "new a.csv", "index.html": "new index.html"}


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "made" / "for" / "it"
    fail_at_second_write(monkeypatch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(ReportError) as caught:
        publish.publish(documents("a.csv", "index.html"), target)
    assert str(caught.value) == (
        f"cannot write the report to {target}: No space left on device; "
        "free some space or choose another directory."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_report_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("old")
    fail_at_second_write(monkeypatch, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    with pytest.raises(ReportError, match="Permission denied; choose a directory that"):
        publish.publish(documents("a.csv", "index.html"), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.csv": "old"}


def test_a_bug_while_drawing_leaves_nothing_behind(tmp_path: Path) -> None:
    def broken() -> object:
        yield ReportFile("a.csv", b"")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        publish.publish(broken(), tmp_path / "report")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a file")
    with pytest.raises(ReportError, match="it is a file; choose another directory"):
        publish.publish(documents("index.html"), tmp_path / "report")
    assert (tmp_path / "report").read_text() == "a file"


def test_a_directory_in_a_file_s_place_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "index.html").mkdir()
    with pytest.raises(ReportError, match="is a directory; choose another"):
        publish.publish(documents("a.csv", "index.html"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_a_path_below_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match=r"^cannot write the report to .*\.$"):
        publish.publish(documents("index.html"), tmp_path / "file" / "report")


def fail_at_second_write(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    real = publish.write_file
    written: list[Path] = []

    def failing(path: Path, content: bytes) -> None:
        if written:
            raise error
        written.append(path)
        real(path, content)

    monkeypatch.setattr(publish, "write_file", failing)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
def test_a_real_size_limit_leaves_nothing_behind(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from trainmaster.report.atomic_write import ReportError, ReportFile, publish
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            publish([ReportFile("a.csv", b"x"), ReportFile("index.html", b"x" * 10000)], Path(sys.argv[1]))
        except ReportError as error:
            print(error)
    """)
    command = [sys.executable, "-c", program, str(tmp_path / "report")]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(command, capture_output=True, text=True, env=paths, check=True)
    assert "File too large; free some space or choose another directory." in ran.stdout
    assert list(tmp_path.iterdir()) == []


def test_names_unfit_for_files_are_made_fit(three_policies: tuple[Result, ...]) -> None:
    names = ("../evil/$x", "fifo", "FIFO", "", "fifo")
    runs = name_runs([replace(three_policies[0], policy=name) for name in names])
    assert [each.slug for each in runs] == ["evil-x", "fifo", "FIFO-2", "policy", "fifo-3"]
    assert runs[-1].label == "fifo (3)"
