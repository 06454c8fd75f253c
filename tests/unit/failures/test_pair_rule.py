"""Which node made a gang fail, found by all-reduces between two nodes at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainmaster.failures.pair_rule import (
    Pair,
    PairTest,
    bad_nodes,
    good_nodes,
    next_pairs,
    undecided,
)

FAST, SLOWED = 10**9, 10**8

Network = Callable[[Pair], int | None]


def broken(*nodes: str) -> Network:
    """Whatever these have a part in fails."""
    return lambda pair: None if {*pair} & {*nodes} else FAST


def rounds(suspects: str, others: str, network: Network) -> tuple[list[list[str]], list[PairTest]]:
    """The pairs of each round, and what all of them said."""
    tests, told = list[PairTest](), list[list[str]]()
    while pairs := next_pairs([*suspects], [*others], tests):
        told.append(["".join(pair) for pair in pairs])
        tests += [PairTest(pair, network(pair), "it timed out.") for pair in pairs]
        assert len(told) < 9, "it goes on for ever"
    return told, tests


@pytest.mark.parametrize(
    ("suspects", "others", "network", "tried", "bad", "open_"),
    [
        ("abcd", "", broken(), [["ab", "cd"]], "", ""),
        ("abcd", "", broken("c"), [["ab", "cd"], ["ca", "db"]], "c", ""),
        ("abcde", "", broken("e"), [["ab", "cd"], ["ea"]], "e", ""),
        ("abcd", "", broken("b", "c"), [["ab", "cd"]], "", "abcd"),
        ("abcd", "xy", broken("b", "c"), [["ab", "cd"], ["ax", "by"], ["ca", "dx"]], "bc", ""),
        ("ab", "", broken("a"), [["ab"]], "", "ab"),
        ("ab", "x", broken("a"), [["ab"], ["ax"], ["bx"]], "a", ""),
        ("ab", "x", broken("x"), [["ab"]], "", ""),
        ("a", "x", broken("a"), [["ax"]], "", "a"),
        ("a", "", broken("a"), [], "", ""),
    ],
    ids=[
        "all are good",
        "one of four: its first partner is cleared in the second round",
        "the odd one waits for a good partner",
        "one of each pair, and nobody to compare with",
        "one of each pair, with idle nodes beside them",
        "one of two, or the wire between them",
        "one of two, and a third that tells",
        "an idle node's trouble is not the gang's",
        "one node and an idle one: nobody can tell",
        "one node alone",
    ],
)
def test_rounds(
    suspects: str, others: str, network: Network, tried: list[list[str]], bad: str, open_: str
) -> None:
    told, tests = rounds(suspects, others, network)
    assert "".join(node for node, _ in bad_nodes([*suspects], tests)) == bad
    assert "".join(undecided([*suspects], tests)) == open_
    if bad != "bc":  # who is tried with whom beyond the first two rounds is not promised
        assert told[: len(tried)] == tried


def test_a_slow_node_is_bad_too() -> None:
    _, tests = rounds("abcdef", "", lambda pair: SLOWED if "c" in pair else FAST)
    ((node, why),) = bad_nodes([*"abcdef"], tests)
    assert node == "c"
    assert why == (
        "An all-reduce with a, which is good, gets 100 MB/s, less than a third of what others get."
    )
    assert good_nodes(tests) == {*"abdef"}


def test_it_says_with_whom_it_failed() -> None:
    _, tests = rounds("abcd", "", broken("c"))
    assert bad_nodes([*"abcd"], tests) == [
        ("c", "An all-reduce with a, which is good, failed: it timed out.")
    ]
