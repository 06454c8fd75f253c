"""Who is asking: every request has a caller, with a user and a role."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from fastapi import Depends, Request

Via = Literal["socket", "token", "link"]
"""How a caller showed who it is: the kernel says so, a token does, or a session of the page."""


class Role(StrEnum):
    """What a caller may do; each role may do what those before it may."""

    VIEWER = "viewer"
    """Sees the jobs of everyone, not their output or environment, and changes nothing."""
    USER = "user"
    """Submits jobs, and sees and changes its own."""
    OPERATOR = "operator"
    """Sees and changes every job, nodes, queues and the policy."""
    ADMIN = "admin"
    """Also tokens, users and their roles."""

    def is_at_least(self, other: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    user: str
    role: Role
    uid: int | None
    """The Unix user, where the kernel says so."""
    via: Via
    pid: int | None = None
    token: str | None = None
    """The id of the token that it came with."""

    @property
    def is_operator(self) -> bool:
        return self.role.is_at_least(Role.OPERATOR)

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def owns(self, user: str) -> bool:
        """Whether jobs of this user are its own; a viewer has none."""
        return self.user == user and self.role.is_at_least(Role.USER)


def asked_by(request: Request) -> Caller:
    """The caller of a request, for routes: `by: By`."""
    caller: Caller = request.state.caller
    return caller


By = Annotated[Caller, Depends(asked_by)]
"""The parameter of a route that depends on who asks."""
