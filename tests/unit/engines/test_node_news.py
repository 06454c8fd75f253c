"""What an engine is told of its nodes: each thing once, and nothing is gone before its fence has passed."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.engines.ray.former_nodes import FormerNode
from trainmaster.engines.ray.node_link import (
    NodeFound,
    NodeGone,
    NodeNews,
    NodeSilent,
    TakenByOthers,
)
from trainmaster.engines.ray.node_news import MARGIN_MS, NodeBook, Sight
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.topology import GpuType

FENCE_MS = 60_000
GONE_MS = FENCE_MS + MARGIN_MS
NODE = ClusterNode("n0", "10.0.0.1", 4, GpuType(), 4000, 1 << 30)
UP = Sight("n0", "i1", "l1", NODE)
DEAD = Sight("n0", "i1", why="Ray counts it as dead.")
STARTING = Sight("n0", "i2")
BACK = Sight("n0", "i2", "l2", NODE)


def told(*looks: tuple[int, tuple[Sight, ...]]) -> list[list[NodeNews]]:
    book = NodeBook(FENCE_MS)
    return [book.see(sights, at) for at, sights in looks]


def kinds(news: list[NodeNews]) -> list[type]:
    return [type(each) for each in news]


def test_a_node_is_found_once() -> None:
    first, second = told((0, (UP,)), (1, (UP,)))
    assert kinds(first) == [NodeFound, TakenByOthers]
    assert second == []


def test_another_launcher_on_a_node_is_told_as_found_again() -> None:
    _, again = told((0, (UP,)), (1, (Sight("n0", "i1", "l2", NODE),)))
    assert kinds(again) == [NodeFound, TakenByOthers]


def test_a_dead_node_is_silent_at_once_and_gone_after_its_fence() -> None:
    _, silent, later, gone, after = told(
        (0, (UP,)), (10, (DEAD,)), (9 + GONE_MS, (DEAD,)), (10 + GONE_MS, (DEAD,)), (10**9, (DEAD,))
    )
    assert silent == [NodeSilent("n0", "i1", "Ray counts it as dead.")]
    assert [each.gone_ms for each in silent if isinstance(each, NodeSilent)] == [10 + GONE_MS]
    assert later == []
    assert kinds(gone) == [NodeGone]
    assert after == []


def test_one_that_ray_has_forgotten_is_silent_too() -> None:
    _, silent, gone = told((0, (UP,)), (10, ()), (10 + GONE_MS, ()))
    assert kinds(silent) == [NodeSilent]
    assert kinds(gone) == [NodeGone]


def test_one_that_is_back_within_the_fence_is_not_gone() -> None:
    *_, back, later = told((0, (UP,)), (10, (DEAD,)), (20, (BACK,)), (10**9, (BACK,)))
    assert kinds(back) == [NodeFound, TakenByOthers]
    assert later == []


def test_while_a_launcher_is_started_nothing_is_gone_as_it_may_let_runs_go_on() -> None:
    _, _, _, starting, refused, early, gone = told(
        (0, (UP,)),
        (10, (DEAD,)),
        (20, (STARTING,)),
        (10 * GONE_MS, (STARTING,)),
        (20 * GONE_MS, (Sight("n0", "i2", why="It is of another version."),)),
        (21 * GONE_MS - 1, (Sight("n0", "i2", why="It is of another version."),)),
        (21 * GONE_MS, (Sight("n0", "i2", why="It is of another version."),)),
    )
    assert starting == []
    assert refused == [NodeSilent("n0", "i2", "It is of another version.")]
    assert early == []
    assert kinds(gone) == [NodeGone]


REFUSED = Sight("n0", "i1", why="Its disk is full.", is_fence_as_it_was=True)
FAILED = Sight("n0", "i1", why="Its disk is full.")
TRIED = Sight("n0", "i1")


def test_a_node_whose_launcher_is_refused_again_and_again_is_gone_after_its_fence() -> None:
    tries = [(at, (each,)) for at in range(0, GONE_MS, 15_000) for each in (TRIED, REFUSED)]
    first, *later = told((0, (UP,)), (0, (REFUSED,)), *tries, (GONE_MS, (REFUSED,)))[1:]
    assert first == [NodeSilent("n0", "i1", "Its disk is full.")]
    assert [kinds(each) for each in later if each] == [[NodeGone]]
    assert kinds(later[-1]) == [NodeGone]


def test_one_that_is_gone_and_refused_once_more_is_not_gone_again() -> None:
    *_, gone, tried, refused, after = told(
        (0, (UP,)),
        (0, (REFUSED,)),
        (GONE_MS, (REFUSED,)),
        (GONE_MS + 1, (TRIED,)),
        (GONE_MS + 2, (REFUSED,)),
        (10 * GONE_MS, (REFUSED,)),
    )
    assert kinds(gone) == [NodeGone]
    assert tried == refused == after == []


def test_a_launcher_that_may_have_confirmed_before_it_failed_gives_the_whole_fence_again() -> None:
    *_, early, gone = told(
        (0, (UP,)),
        (0, (FAILED,)),
        (15_000, (TRIED,)),
        (20_000, (FAILED,)),
        (GONE_MS, (FAILED,)),
        (20_000 + GONE_MS, (FAILED,)),
    )
    assert early == []
    assert kinds(gone) == [NodeGone]


def test_a_node_that_starts_and_is_lost_again_has_its_whole_fence_once_more() -> None:
    _, _, _, silent, early, gone = told(
        (0, (UP,)),
        (10, (DEAD,)),
        (20, (STARTING,)),
        (1000, ()),
        (999 + GONE_MS, ()),
        (1000 + GONE_MS, ()),
    )
    assert kinds(silent) == [NodeSilent]
    assert early == []
    assert kinds(gone) == [NodeGone]


def test_a_node_that_an_earlier_manager_gave_a_longer_fence_is_gone_only_after_that() -> None:
    book = NodeBook(FENCE_MS, 5 * FENCE_MS)
    book.miss("n0", 0)
    book.see((Sight("n1", "i1", why="Ray counts it as dead."),), 0)
    assert kinds(book.see((), GONE_MS)) == []
    assert kinds(book.see((), 5 * FENCE_MS + MARGIN_MS)) == [NodeGone, NodeGone]


def test_once_it_was_reached_its_fence_is_that_of_this_manager() -> None:
    book = NodeBook(FENCE_MS, 5 * FENCE_MS)
    book.see((UP,), 0)
    book.see((DEAD,), 10)
    assert kinds(book.see((DEAD,), 10 + GONE_MS)) == [NodeGone]


RENAMED = Sight("m0", "i2", "l2", replace(NODE, name="m0"), former=(FormerNode("n0", "i1"),))


def test_a_machine_that_is_back_under_another_name_leaves_nothing_of_its_old_one() -> None:
    _, news, later, after = told(
        (0, (UP,)), (10, (UP, RENAMED)), (20, (DEAD, RENAMED)), (30, (RENAMED,))
    )
    assert kinds(news) == [NodeSilent, NodeFound, TakenByOthers, NodeGone]
    assert [each.why for each in news if isinstance(each, NodeGone)] == [
        "Its machine is back as m0. Nothing runs there any more."
    ]
    assert later == after == []


def test_that_is_not_said_of_a_later_node_with_the_old_name() -> None:
    *_, news, later = told((0, (UP,)), (10, (DEAD,)), (20, (BACK, RENAMED)), (30, (BACK, RENAMED)))
    assert NodeGone not in kinds(news)
    assert later == []


def test_so_it_is_where_another_manager_with_a_longer_one_has_come_since() -> None:
    book = NodeBook(FENCE_MS, 2 * FENCE_MS)
    book.see((UP,), 0)
    book.see((DEAD,), 10)
    book.lengthen(FENCE_MS)
    book.lengthen(5 * FENCE_MS)
    assert book.see((DEAD,), 10 + GONE_MS) == []
    assert kinds(book.see((DEAD,), 10 + 5 * FENCE_MS + MARGIN_MS)) == [NodeGone]


def test_a_node_that_cannot_be_used_from_the_start_is_silent() -> None:
    first, second = told((0, (DEAD,)), (1, (DEAD,)))
    assert kinds(first) == [NodeSilent]
    assert second == []


def test_what_others_take_is_told_when_it_changes() -> None:
    _, changed, same = told(
        (0, (UP,)),
        (1, (Sight("n0", "i1", "l1", NODE, taken=2),)),
        (2, (Sight("n0", "i1", "l1", NODE, taken=2),)),
    )
    assert changed == [TakenByOthers("n0", 2)]
    assert same == []


def test_a_node_that_is_named_and_was_never_seen_is_treated_as_a_dead_one() -> None:
    book = NodeBook(FENCE_MS)
    assert kinds(book.miss("n9", 0)) == [NodeSilent]
    assert book.miss("n9", 1) == []
    assert book.see((), GONE_MS - 1) == []
    assert kinds(book.see((), GONE_MS)) == [NodeGone]


def test_who_comes_later_hears_all_that_is_known() -> None:
    book = NodeBook(FENCE_MS)
    book.see((UP, Sight("n1", "i9", why="It has no GPUs.")), 0)
    assert kinds(book.now()) == [NodeFound, TakenByOthers, NodeSilent]
    assert book.found == (NODE,)
