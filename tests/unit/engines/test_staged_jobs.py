"""Files of jobs on a node: nothing leaves its folder, what is needed stays, and the rest goes in time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.engines.copied_files import COPIED_NS
from trainmaster.engines.ray import staged_jobs
from trainmaster.engines.ray.file_tree import (
    CHECKPOINTS,
    CODE,
    Entry,
    Tree,
    entries_of,
    leads_out,
    with_digests,
)
from trainmaster.engines.ray.staged_jobs import StagedJobs
from trainmaster.engines.ray.staged_values import NoRoom, Piece, Wanted
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import Account, LaunchSpec

RUN = Run("12", 1)
DATA = "/data"


class Sent:
    """A job's copy of the code at a manager, and the node that it is sent to."""

    def __init__(self, folder: Path, job: str = "12", place: str = "") -> None:
        self.source = folder / "manager" / job
        self.source.mkdir(parents=True)
        self.node = StagedJobs(folder / "node")
        self.run = Run(job, 1)
        self.at = place or f"{job}/code"
        self.here = folder / "node" / "jobs" / self.at
        (folder / "node").mkdir(exist_ok=True)
        self.spec = LaunchSpec(
            ("true",), f"{DATA}/jobs/{self.at}", f"{DATA}/jobs/{job}/checkpoints"
        )
        self.puts = 0

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        os.utime(path, ns=(COPIED_NS, COPIED_NS))

    @property
    def tree(self) -> Tree:
        entries = tuple(with_digests(self.source, entries_of(self.source, CODE)))
        return Tree(CODE, self.spec.workdir, self.at, entries)

    def send(self) -> None:
        for _ in range(3):
            lacking = self.node.stage(self.run, self.spec, (self.tree,))
            if not lacking:
                return
            for each in lacking:
                entry = self.tree.entries[each.entry]
                data = (self.source / entry.path).read_bytes()
                self.node.put(self.run, [Piece(entry, 0, data)])
                self.puts += 1
        raise AssertionError(lacking)

    def found(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.here)): path.read_text()
            for path in sorted(self.here.rglob("*"))
            if path.is_file()
        }


def test_a_job_is_launched_where_its_files_are(tmp_path: Path) -> None:
    sent = Sent(tmp_path)
    sent.write("deep/tool", "one", mode=0o755)
    (sent.source / "link").symlink_to("deep/tool")
    sent.send()
    assert sent.found() == {"deep/tool": "one", "link": "one"}
    assert (sent.here / "link").is_symlink()
    assert os.access(sent.here / "deep/tool", os.X_OK)
    here = sent.node.here(RUN, sent.spec)
    assert here.workdir == str(sent.here)
    assert here.checkpoint_dir == sent.spec.checkpoint_dir
    assert sent.node.here(Run("12", 2), sent.spec) == sent.spec


@pytest.mark.parametrize("path", ["../out", "/etc/out", "a/../../out", ".", "a//b", "a\0b", ""])
def test_no_path_leads_out_of_a_jobs_folder(tmp_path: Path, path: str) -> None:
    sent = Sent(tmp_path)
    evil = Entry(path, size=1)
    with pytest.raises(ValueError, match="leads out"):
        sent.node.stage(RUN, sent.spec, (Tree(CODE, DATA, "12/code", (evil,)),))
    with pytest.raises(ValueError, match="leads out"):
        sent.node.put(RUN, [Piece(evil, 0, b"x")])
    with pytest.raises(ValueError, match="is not a digest"):
        sent.node.put(RUN, [Piece(Entry("a", size=1, digest="../../x"), 0, b"x")])
    with pytest.raises(ValueError, match="leads out"):
        sent.node.stage(RUN, sent.spec, (Tree(CODE, DATA, "../code"),))


def test_no_link_that_is_sent_is_followed_by_what_is_sent_after_it(tmp_path: Path) -> None:
    sent = Sent(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    link = Entry("way", link=str(outside), mtime_ns=1)
    empty = Entry("way/file", size=0, mtime_ns=1)
    tree = Tree(CODE, DATA, "12/code", (link, empty))
    sent.node.stage(RUN, sent.spec, (tree,))
    sent.node.put(RUN, [Piece(empty, 0, b"")])
    sent.node.stage(RUN, sent.spec, (tree,))  # it cannot be placed
    assert [*outside.iterdir()] == []


def test_what_arrives_damaged_is_lacking_again(tmp_path: Path) -> None:
    sent = Sent(tmp_path)
    sent.write("train.py", "whole")
    tree = sent.tree
    (lacking,) = sent.node.stage(RUN, sent.spec, (tree,))
    sent.node.put(RUN, [Piece(tree.entries[lacking.entry], 0, b"wrong")])
    assert sent.node.stage(RUN, sent.spec, (tree,)) == (lacking,)
    sent.send()
    assert sent.found() == {"train.py": "whole"}


def test_the_next_attempt_gets_only_what_differs_and_finds_nothing_of_the_last(
    tmp_path: Path,
) -> None:
    sent = Sent(tmp_path)
    for name in ("a", "b", "c"):
        sent.write(name, name)
    sent.send()
    (sent.here / "a").write_text("changed, and lost with its run")
    (sent.here / "new").write_text("lost too")
    sent.write("b", "another")
    sent.run = Run("12", 2)
    before = sent.puts
    sent.send()
    assert sent.found() == {"a": "a", "b": "another", "c": "c"}
    assert sent.puts == before + 1
    assert sent.node.changes(RUN, (CODE,)) is None


def test_changes_are_what_the_job_did_itself(tmp_path: Path) -> None:
    sent = Sent(tmp_path)
    for name in ("a", "b", "c"):
        sent.write(name, name)
    sent.send()
    (sent.here / "b").unlink()
    (sent.here / "c").write_text("more")
    (sent.here / "__pycache__").mkdir()
    (sent.here / "__pycache__" / "c.pyc").write_text("cache")
    said = sent.node.changes(RUN, (CODE,))
    assert said is not None
    (changes,), removed = said, said[0].removed
    assert [entry.path for entry in changes.written] == ["c"]
    assert removed == ("b",)
    entry = changes.written[0]
    assert sent.node.read(RUN, CODE, [Wanted(entry, 1, 3)]) == (b"ore",)
    (sent.here / "c").write_text("changed meanwhile")
    assert sent.node.read(RUN, CODE, [Wanted(entry, 1, 3)]) == (None,)


def test_checkpoints_that_are_being_written_are_not_seen(tmp_path: Path) -> None:
    for name in ("step-1", ".new-step-2", ".old-step-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state").touch()
    assert [*entries_of(tmp_path, CHECKPOINTS)] == ["step-1", "step-1/state"]


def test_links_that_lead_out_of_a_copy_are_named(tmp_path: Path) -> None:
    folder = str(tmp_path / "code")
    links = ("/data/imagenet", "../x", f"{folder}/in", f"{folder}er/out")
    found = {str(n): Entry(str(n), link=link) for n, link in enumerate(links)}
    assert leads_out(folder, found) == ("/data/imagenet", f"{folder}er/out")


def test_jobs_of_an_array_share_a_copy_and_do_not_disturb_each_other(tmp_path: Path) -> None:
    first, second = Sent(tmp_path, "12_0", "12/code"), Sent(tmp_path, "12_1", "12/code")
    for each in (first, second):
        each.write("a", "a")
    first.send()
    (first.here / "a").write_text("in use")
    (first.here / "own").write_text("of the first")
    second.write("b", "b")
    second.send()
    assert second.found() == {"a": "in use", "b": "b", "own": "of the first"}
    for each in (first, second):
        each.node.settle(each.run, {})
    first.node.forget(first.run)
    assert not first.here.exists()


def test_what_no_run_needs_is_removed_when_it_takes_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Sent(tmp_path, str(number)) for number in range(3)]
    for number, each in enumerate(jobs):
        each.write("code", str(number) * 1000)
        each.send()
    monkeypatch.setattr(StagedJobs, "_most_kept", lambda self: 0)
    jobs[0].node.settle(jobs[0].run, {})
    assert [each.here.exists() for each in jobs] == [False, True, True]
    assert [*(tmp_path / "node" / "cache").rglob("*")][1:] == []


def test_a_node_without_room_says_so_and_makes_room_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Sent(tmp_path, "1"), Sent(tmp_path, "2")
    old.write("code", "x" * 1000)
    old.send()
    new.write("code", "y" * 1000)
    monkeypatch.setattr(staged_jobs, "free_bytes", lambda folder: 500)
    with pytest.raises(NoRoom, match=r"its disk is full: .* has 500 bytes left, and"):
        new.send()
    assert old.here.exists()
    old.node.settle(old.run, {})
    room: Callable[[Path], int] = lambda folder: 500 if old.here.exists() else 5000  # noqa: E731
    monkeypatch.setattr(staged_jobs, "free_bytes", room)
    new.send()
    assert new.found() == {"code": "y" * 1000}
    assert not old.here.exists()


def test_nothing_of_a_job_that_is_forgotten_is_left(tmp_path: Path) -> None:
    sent = Sent(tmp_path)
    sent.write("code", "x")
    sent.send()
    sent.node.forget(Run("12", 7))
    assert sent.here.exists()
    sent.node.forget(RUN)
    assert not sent.here.parent.exists()


def test_another_job_of_this_number_finds_nothing_of_the_first(tmp_path: Path) -> None:
    sent = Sent(tmp_path)
    place = tmp_path / "node" / "jobs" / "12" / "checkpoints"
    saved = Tree(CHECKPOINTS, sent.spec.checkpoint_dir, "12/checkpoints")
    spec = replace(sent.spec, uuid="a" * 32)
    sent.node.stage(RUN, spec, (saved,))
    (place / "model").write_text("of the first job")
    sent.node.stage(RUN, replace(spec, uuid="b" * 32), (saved,))
    assert [*place.iterdir()] == []


def test_what_cannot_be_read_is_not_taken_for_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(tmp_path)
    sent.write("deep/tool", "one")
    sent.send()
    opening = os.open

    def fail(path: str, *words: object, **named: object) -> int:
        if path == "deep":
            raise OSError(5, "Input/output error")
        return opening(path, *words, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Input/output error"):
        sent.node.changes(RUN, (CODE,))


def test_no_files_are_given_to_a_number_that_is_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(tmp_path)
    sent.spec = replace(sent.spec, account=Account("no-such-account", 1001, 1001, "/"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoRoom, match="no account no-such-account with the number 1001"):
        sent.send()
    assert not sent.here.exists()
