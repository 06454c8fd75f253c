"""Why devices are set aside: each cause by itself, since one may end while another stays."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class AsideCause(StrEnum):
    """Who, or what, set a device aside."""

    USER = "user"
    FAILURES = "failures"
    """Job after job failed there; it ends where their programs fail elsewhere too."""
    XID = "xid"
    """Its driver says that it must be reset."""
    RESTART = "restart"
    """It does not answer, or its driver says that the machine must be restarted."""
    SELF_TEST = "self-test"
    DISK = "disk"
    """The disk of the data folder is full; it ends when there is room."""
    TAKEN = "taken"
    """Other users of the cluster hold it; it ends when they give it back."""


FOR_TESTS = frozenset({AsideCause.FAILURES, AsideCause.XID})
"""Causes of which a self-test may tell more."""


class AsideWhy(NamedTuple):
    """One cause, with a sentence for people."""

    cause: AsideCause
    why: str
    is_tested: bool = False
    """The device was tested since, and the sentence says how that went."""


class GpuAside(NamedTuple):
    """Since when a device is set aside, and why: an entry for each cause, in the order in which they came."""

    since_ms: int
    whys: tuple[AsideWhy, ...]

    @property
    def why(self) -> str:
        """For people."""
        return " ".join(each.why for each in self.whys if each.why)

    def of(self, cause: AsideCause) -> AsideWhy | None:
        return next((each for each in self.whys if each.cause is cause), None)

    def also(self, new: AsideWhy) -> GpuAside:
        """With this cause, or with what is known of it now."""
        if self.of(new.cause) is None:
            return self._replace(whys=(*self.whys, new))
        return self._replace(
            whys=tuple(new if each.cause is new.cause else each for each in self.whys)
        )

    def without(self, cause: AsideCause) -> GpuAside | None:
        """What is left when this cause has ended; None: nothing."""
        left = tuple(each for each in self.whys if each.cause is not cause)
        return self._replace(whys=left) if left else None

    @property
    def is_only_taken(self) -> bool:
        """Whether others hold it, and nothing else speaks against it."""
        return all(each.cause is AsideCause.TAKEN for each in self.whys)

    @property
    def suspicion(self) -> AsideWhy | None:
        """What it should be tested for; None: nothing, or it was tested since."""
        if self.of(AsideCause.SELF_TEST) is not None or self.of(AsideCause.RESTART) is not None:
            return None
        return next((e for e in self.whys if e.cause in FOR_TESTS and not e.is_tested), None)


def stated_only_in_words(why: str) -> AsideWhy:
    """The cause in a store of an earlier version, which has the sentence alone."""
    tested = "self-test passed" in why or "It could not be tested" in why
    return AsideWhy(
        next((cause for words, cause in FORMER_WORDS if words in why), AsideCause.USER), why, tested
    )


FORMER_WORDS = (
    ("Its self-test failed", AsideCause.SELF_TEST),
    ("Its self-test is slow", AsideCause.SELF_TEST),
    ("failed there one after another", AsideCause.FAILURES),
    ("It does not answer", AsideCause.RESTART),
    ("restart the machine", AsideCause.RESTART),
    ("XID ", AsideCause.XID),
    ("The disk of the data folder is full", AsideCause.DISK),
)
"""What the sentences of earlier versions have in them, by cause; any other is a user's."""
