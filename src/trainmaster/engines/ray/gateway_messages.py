"""What the manager and its gateway to Ray say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.engines.ray.node_news import Sight
from trainmaster.model.job import Run


@dataclass(frozen=True, slots=True)
class Connect:
    """The first value that the manager sends."""

    address: str
    store: str
    fence_s: float
    longest_fence_s: float
    serves_users: bool
    launcher: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why it cannot be connected: one sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class Call:
    number: int
    node: str
    method: str
    words: bytes
    """Pickled."""


@dataclass(frozen=True, slots=True)
class Reserve:
    number: int
    run: Run
    thousandths: Mapping[str, int]
    cpus: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AskReserved:
    number: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """End the launchers, and give back all that is reserved."""

    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    number: int
    value: Any = None
    unreachable: str = ""
    not_reserved: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look has found."""

    sights: tuple[Sight, ...]
    troubles: tuple[str, ...]
    is_settled: bool
    """Whether no launcher is being started."""
    alive: tuple[tuple[str, str], ...] = ()
    """Nodes that are there, and why each is not used; empty where it is."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """What a look has found; None: the same as the last one."""

    looked: Looked | None
    is_answered: bool = True
    """Whether Ray's control store has answered."""


Request = Call | Reserve | AskReserved | Withdraw
