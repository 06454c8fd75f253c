"""What the manager makes of what several nodes have changed in their copies of a job's folder."""

from __future__ import annotations

import pytest

from trainmaster.engines.ray.file_tree import Entry
from trainmaster.engines.ray.staged_values import Changes
from trainmaster.engines.ray.tree_merge import Merge, merged

NODES = ("n0", "n1")


def a_file(path: str, at: int = 1) -> Entry:
    return Entry(path, size=10, mtime_ns=at)


def merge(
    own: str = "",
    brought: dict[str, str] | None = None,
    keeps_both: bool = True,
    **said: tuple[str, str],
) -> tuple[list[str], list[str], Merge]:
    """By words: what the manager has, and what each node wrote and removed. `a@2` was written at 2."""
    found = merged(
        {each.path: each for each in map(entry_of, own.split())},
        brought or {},
        NODES,
        {
            node: Changes("code", tuple(map(entry_of, written.split())), tuple(removed.split()))
            for node, (written, removed) in said.items()
        },
        keeps_both=keeps_both,
    )
    return [f"{each.node}:{each.path}" for each in found.fetched], [*found.removed], found


def entry_of(word: str) -> Entry:
    path, _, at = word.partition("@")
    return a_file(path, int(at or 1))


def test_what_is_here_already_is_not_fetched_again() -> None:
    fetched, removed, found = merge("a b@3", {"a": "n0"}, n0=("a b@4", ""), n1=("", ""))
    assert (fetched, removed) == (["n0:b"], [])
    assert found.brought == {"a": "n0", "b": "n0"}


@pytest.mark.parametrize(("keeps_both", "beside"), [(True, ["n1:log.n1"]), (False, [])])
def test_of_two_files_of_one_path_that_of_the_first_ranks_counts(
    keeps_both: bool, beside: list[str]
) -> None:
    fetched, _, _ = merge(keeps_both=keeps_both, n0=("log", ""), n1=("log@2", ""))
    assert fetched == ["n0:log", *beside]


def test_the_file_of_a_node_that_is_gone_still_counts_before_that_of_another() -> None:
    fetched, removed, _ = merge("log old", {"log": "n0", "old": "n0"}, n1=("log@2", ""))
    assert (fetched, removed) == (["n1:log.n1"], [])


def test_a_file_that_the_first_ranks_wrote_later_takes_its_path() -> None:
    fetched, _, found = merge("log", {"log": "n1"}, n0=("log@2", ""), n1=("log", ""))
    assert fetched == ["n0:log", "n1:log.n1"]
    assert found.brought == {"log": "n0", "log.n1": "n1"}


def test_two_nodes_that_write_as_much_in_one_moment_are_not_taken_for_one() -> None:
    fetched, _, _ = merge("log", {"log": "n1"}, n0=("log", ""), n1=("", ""))
    assert fetched == ["n0:log"]


def test_what_a_job_removed_is_removed_here_and_nothing_else() -> None:
    _, removed, found = merge(
        "sent step-1 step-2 theirs",
        {"step-1": "n0", "step-2": "n0"},
        n0=("step-2", "sent"),
        n1=("", ""),
    )
    assert removed == ["step-1", "sent"]
    assert found.brought == {"step-2": "n0"}


def test_what_one_node_removed_and_another_wrote_stays() -> None:
    fetched, removed, _ = merge("a", n0=("", "a"), n1=("a@2", ""))
    assert (fetched, removed) == (["n1:a"], [])


def test_what_another_task_of_its_array_has_settled_is_not_removed() -> None:
    there = Changes("code", (), (), unchanged=("f",))
    found = merged({"f": a_file("f")}, {"f": "n0"}, NODES, {"n0": there}, keeps_both=True)
    assert (found.removed, found.brought) == ((), {"f": "n0"})
