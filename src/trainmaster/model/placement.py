"""Where a run sits: slices of GPUs, how wide they span, how they are shared, in which role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from trainmaster.model.units import WHOLE


class Sharing(Enum):
    """How a GPU is shared; one mode per GPU at a time, fixed per launch."""

    EXCLUSIVE = "exclusive"
    MPS = "mps"
    TIME = "time"


class Role(Enum):
    """What a job is owed: its speed, or what is left over."""

    GUARANTEED = "guaranteed"
    OPPORTUNISTIC = "opportunistic"


class Slice(NamedTuple):
    """A part of one GPU. A named tuple, not a dataclass: big gangs make hundreds of them."""

    node: int
    gpu: int
    share: int = WHOLE
    memory: int = 0
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """All slices of one run, or none: gangs are all or nothing."""

    slices: tuple[Slice, ...]
    span: int
    """A level of the topology: the deepest that holds all slices."""
    sharing: Sharing = Sharing.EXCLUSIVE
    role: Role = Role.GUARANTEED

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes it touches, each once, in order of first appearance."""
        return tuple(dict.fromkeys(piece.node for piece in self.slices))

    @property
    def total_share(self) -> int:
        """Thousandths of a GPU held."""
        if self.sharing is Sharing.EXCLUSIVE:
            return WHOLE * len(self.slices)
        return sum(piece.share for piece in self.slices)

    def gpus(self) -> Iterator[int]:
        return (piece.gpu for piece in self.slices)
