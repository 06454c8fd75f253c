"""Which node made a gang fail: all-reduces between two nodes at a time, in rounds.

A collective operation that times out says only that some rank, or some wire, did not do its part. First
the gang's nodes are tried with each other, two by two: both of a pair that works are good. Then each that
is left is tried with a good one, of the gang or from beside it: what fails there too is bad. (So do
MegaScale and DLRover's network check.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SLOW = 3
"""How many times slower than the median of the other pairs a pair counts as failed."""
MOST_PARTNERS = 3
"""How many partners a node is tried with, at most."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PairTest:
    """One all-reduce between two nodes."""

    pair: Pair
    bytes_per_s: int | None = None
    """None: it failed."""
    why: str = ""
    """What went wrong: a sentence."""

    def partner_of(self, node: str) -> str:
        first, second = self.pair
        return second if node == first else first


def next_pairs(
    suspects: Sequence[str], others: Sequence[str], tests: Sequence[PairTest]
) -> list[Pair]:
    """What is to be tried next, each node once; nothing: all is known that can be.

    `others` are nodes that had no part in the gang.
    """
    if not tests and len(suspects) > 1:
        return [*zip(suspects[::2], suspects[1::2], strict=False)]
    good = good_nodes(tests)
    known = good | {each for each, _ in bad_nodes(suspects, tests)}
    found, used = list[Pair](), set[str]()
    for node in suspects:
        tried = {test.partner_of(node) for test in tests if node in test.pair}
        if node in known or len(tried) >= MOST_PARTNERS:
            continue
        partners = (each for each in (*sorted(good), *others) if each not in tried | used)
        if (partner := next(partners, None)) is not None:
            used.add(partner)
            found.append((node, partner))
    return found


def good_nodes(tests: Sequence[PairTest]) -> set[str]:
    """Nodes of a pair that worked, about as fast as the others."""
    return {node for test in tests if not _is_failed(test, tests) for node in test.pair}


def bad_nodes(suspects: Sequence[str], tests: Sequence[PairTest]) -> list[tuple[str, str]]:
    """Nodes that failed with a good one, and a sentence for each."""
    good = good_nodes(tests)
    found = list[tuple[str, str]]()
    for node in suspects:
        failed = [t for t in tests if node in t.pair and t.partner_of(node) in good]
        if node not in good and failed:
            found.append((node, _told(node, failed[-1])))
    return found


def undecided(suspects: Sequence[str], tests: Sequence[PairTest]) -> tuple[str, ...]:
    """Nodes that failed, with none that is good: one of them is bad, or a wire between them, or the test."""
    known = {*good_nodes(tests), *(each for each, _ in bad_nodes(suspects, tests))}
    tried = {node for test in tests for node in test.pair}
    return tuple(node for node in suspects if node in tried and node not in known)


def _is_failed(test: PairTest, tests: Sequence[PairTest]) -> bool:
    if test.bytes_per_s is None:
        return True
    others = sorted(t.bytes_per_s for t in tests if t is not test and t.bytes_per_s is not None)
    return bool(others) and test.bytes_per_s * SLOW < others[len(others) // 2]


def _told(node: str, test: PairTest) -> str:
    with_whom = f"An all-reduce with {test.partner_of(node)}, which is good,"
    if test.bytes_per_s is None:
        return f"{with_whom} failed: {test.why}"
    return f"{with_whom} gets {test.bytes_per_s / 1e6:,.0f} MB/s, less than a third of what others get."
