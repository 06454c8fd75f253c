"""What a manager makes of nodes that keep the files of jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import a_job
from tests.unit.daemon.test_cluster_nodes import Manager, cluster_of, manager, perform
from trainmaster.daemon import warm_nodes
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.warm_nodes import WarmNodes
from trainmaster.model import events as e
from trainmaster.model.engine_reports import FilesKept
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.text.messages import story_sentence


async def submit(tm: Manager, id: str, digest: str) -> Run:
    """A job on both devices of a node, with the code of this digest."""
    job = a_job(id, 2, retries=99)
    recipe = LaunchSpec(("true",), "/", "", uuid=f"uuid of {id}", program_digest=digest)
    live = LiveJob(job, id, StoredSubmission(recipe, job), {})
    fact = LoggedEvent(e.JobSubmitted(job))
    await tm.driver.ask(Request(events=[fact], new_jobs=[live]))
    return Run(id, 1)


def test_jobs_of_the_same_code_go_where_it_is_already(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n0", "n1")
        async with manager(tmp_path, cluster) as tm:
            other, first = await submit(tm, "1", "x"), await submit(tm, "2", "y")
            await tm.until_runs(other, first)
            assert cluster.on("n1") == [first]
            again, third = await submit(tm, "3", "y"), await submit(tm, "4", "z")
            cluster.report(first, FilesKept(first, 0, ("n1", "a node that is forgotten")))
            jobs = tm.driver.controller.state.jobs
            await tm.until(lambda: jobs["3"].demand.warm == (1,))
            assert [jobs[id].demand.warm for id in ("1", "2", "4")] == [(), (1,), ()]
            cluster.fell("n0")
            cluster.fell("n1")
            cluster.buried("n0")
            cluster.ended(first)
            await tm.until(lambda: "2" not in jobs)
            cluster.came(*cluster_of("n0", "n1").nodes.values())
            await tm.until(lambda: cluster.on("n1") == [again])
            assert third not in cluster.on("n1")
            assert tm.driver.warm_nodes.of("y") == (1,)

    perform(scene)


def test_the_end_of_a_run_says_what_of_it_stayed_on_its_nodes(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n0")
        async with manager(tmp_path, cluster) as tm:
            run = await submit(tm, "1", "x")
            await tm.until_runs(run)
            cluster.report(run, FilesKept(run, 0, (), "the disk is full"))
            cluster.ended(run)
            await tm.until(lambda: "1" not in tm.driver.controller.state.jobs)
            rows = await tm.daemon.queries.story("1")
            said = [story_sentence(row.what, json.loads(row.detail_json)) for row in rows]
            assert "not all it wrote was brought from its nodes: the disk is full" in said[-1]

    perform(scene)


def test_the_last_programs_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_nodes, "MOST_PROGRAMS", 2)
    warm = WarmNodes()
    for digest in ("a", "b", "a", "c"):
        warm.learn(digest, (len(digest),))
    assert [warm.of(digest) for digest in ("a", "b", "c")] == [(1,), (), (1,)]
    assert warm.learn("a", (0,)) == (0, 1)
    assert warm.learn("a", (1,)) == (), "that is known"
    assert warm.learn("-", (0,)) == ()


def test_the_last_nodes_of_a_program_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_nodes, "MOST_NODES", 2)
    warm = WarmNodes()
    assert warm.learn("a", (7, 3)) == (3, 7)
    warm.learn("a", (7,))
    assert warm.learn("a", (5,)) == (5, 7)
    assert warm.of("a") == (5, 7)
