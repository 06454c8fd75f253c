"""Elements of an array as one line of a list: for the command line and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trainmaster.daemon.job_rows import HUNG, JobRow
from trainmaster.model.job_state import JobState

ARRAY_LIMIT = "ArrayLimit"
BAD_ENDS = (JobState.FAILED, JobState.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class ArrayRow:
    """The elements of one array that are listed, together."""

    array: str
    rows: tuple[JobRow, ...]

    @property
    def id(self) -> str:
        indices = [row.array_index for row in self.rows if row.array_index is not None]
        return f"{self.array}_[{ranges(indices)}]" if indices else self.array

    @property
    def page(self) -> str:
        """The job that its link leads to."""
        return self.array

    @property
    def name(self) -> str:
        """What the names of its elements have in common, without their index."""
        first = self.rows[0]
        index = first.array_index
        return first.name.removesuffix(f"_{index}").removesuffix(f"[{index}]")

    @property
    def user(self) -> str:
        return self.rows[0].user

    @property
    def queue(self) -> str:
        return self.rows[0].queue

    @property
    def size(self) -> str:
        return f"{len(self.rows)}x{self.rows[0].gpus:g}"

    @property
    def state_words(self) -> str:
        """How many are in which state, in the order of a job's life; and how many of them hang."""
        counted = Counter(row.state for row in self.rows)
        hung = Counter(row.state for row in self.rows if row.hung is not None)
        return ", ".join(
            f"{counted[state]} {state.label}" + f" ({hung[state]} {HUNG})" * bool(hung[state])
            for state in JobState
            if counted[state]
        )

    @property
    def lost_s(self) -> float:
        return sum(row.lost_s for row in self.rows)

    @property
    def has_failed(self) -> bool:
        return any(row.has_failed for row in self.rows)

    @property
    def since_s(self) -> float:
        return max(row.since_s for row in self.rows)

    @property
    def where_or_why(self) -> str:
        """Which elements failed or hang, and why others wait or did not succeed; or where they run."""
        said = [each for each in (self._failures, self._hangs, self.why) if each]
        nodes = dict.fromkeys(node for row in self.rows for node in row.nodes)
        return " ".join(said) or ", ".join(nodes)

    @property
    def _failures(self) -> str:
        """`4_[1,5] failed.`: unless all of them did."""
        found = []
        for state in BAD_ENDS:
            bad = [row.array_index or 0 for row in self.rows if row.state == state]
            if 0 < len(bad) < len(self.rows):
                found.append(f"{self.array}_[{ranges(bad)}] {state.label}.")
        return " ".join(found)

    @property
    def _hangs(self) -> str:
        """`4_[1,5] hung.`"""
        bad = [row.array_index or 0 for row in self.rows if row.hung is not None]
        return f"{self.array}_[{ranges(bad)}] {HUNG}." if bad else ""

    @property
    def why(self) -> str:
        """Why elements wait, or did not succeed: the reason that most of them give.

        Those that only wait for a place in their array say less than those that do not.
        """
        free = [row for row in self.rows if row.reason is None or row.reason.code != ARRAY_LIMIT]
        for rows in (free, self.rows):
            given = Counter(row.why for row in rows if row.why)
            if given:
                return given.most_common(1)[0][0]
        given = Counter(row.ended_because for row in self.rows if row.ended_because)
        return given.most_common(1)[0][0] if given else ""


def fold(rows: Iterable[JobRow]) -> list[JobRow | ArrayRow]:
    """Elements of an array in one place, where the first of them stood."""
    found: dict[str, JobRow | list[JobRow]] = {}
    for row in rows:
        elements = found.get(row.array or row.id)
        if row.array in (None, row.id):
            found.setdefault(row.id, row)
        elif isinstance(elements, list):
            elements.append(row)
        else:
            found[row.array] = [row]
    return [
        ArrayRow(id, tuple(each)) if isinstance(each, list) else each for id, each in found.items()
    ]


def ranges(indices: Iterable[int]) -> str:
    """0,1,2,5 as `0-2,5`."""
    spans: list[list[int]] = []
    for index in sorted(set(indices)):
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
