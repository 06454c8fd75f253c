"""Tokens and the roles of users, as the store has them: what another manager revoked counts at once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import structlog

from trainmaster.daemon.request_errors import NotFound, RequestError, Unavailable
from trainmaster.model.units import MINUTE
from trainmaster.store.errors import LeadershipLost, StoreError
from trainmaster.store.rows import TokenRow, UserRow

log = structlog.get_logger("trainmaster.accounts")

PREFIX = "tm_"
"""So that a token that was published by mistake is recognised as one."""
RANDOM_BYTES = 32
LONGEST = 100
USED_EVERY = 5 * MINUTE
"""How exact the time of last use is."""
MOST_REMEMBERED = 10_000
T = TypeVar("T")


class AccountStore(Protocol):
    """What is needed of the store; all of it blocks."""

    def token(self, digest: str) -> TokenRow | None: ...

    def token_by_id(self, id: str) -> TokenRow | None: ...

    def tokens(self) -> Sequence[TokenRow]: ...

    def user(self, name: str) -> UserRow | None: ...

    def users(self) -> Sequence[UserRow]: ...

    def keep_account(self, row: TokenRow | UserRow) -> None: ...

    def forget_user(self, name: str) -> None: ...


class Accounts:
    """Checks tokens, and makes and revokes them; only the leader can write."""

    def __init__(
        self, store: AccountStore, otherwise: Callable[[str], TokenRow | None] = lambda _: None
    ) -> None:
        self._store = store
        self._otherwise = otherwise
        """Finds a token by its digest while the store is away."""
        self._known: dict[str, TokenRow] = {}
        """Tokens that were valid when the store last answered: they stay so while it is away."""
        self._roles: dict[str, str | None] = {}
        """The same of roles."""
        self._noting: set[asyncio.Task[None]] = set()

    # -- tokens --------------------------------------------------------------------------------------

    async def token_of(self, text: str) -> TokenRow | None:
        """The token that was shown; None for one that is unknown, expired or revoked."""
        if not text.startswith(PREFIX) or len(text) > LONGEST:
            return None
        digest = digest_of(text)
        try:
            row = await asyncio.to_thread(self._store.token, digest)
        except StoreError as error:
            row = self._known.get(digest) or await asyncio.to_thread(self._otherwise, digest)
            if row is None:
                raise Unavailable(f"this token cannot be checked now: {error}") from None
        if row is None or not hmac.compare_digest(row.digest, digest) or not is_valid(row):
            self._known.pop(digest, None)
            return None
        _remember(self._known, digest, row)
        if row.used_ms is None or now_ms() - row.used_ms > USED_EVERY:
            noting = asyncio.create_task(self._note_use(row))  # nobody waits for it
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)
        return row

    def was_valid(self, text: str) -> bool:
        """Whether this token was valid when it was shown the last time."""
        return digest_of(text) in self._known

    async def is_valid(self, id: str) -> bool:
        """Whether the token of this id still is: a session that it began ends with it."""
        try:
            row = await asyncio.to_thread(self._store.token_by_id, id)
        except StoreError:
            row = next((each for each in self._known.values() if each.id == id), None)
        return row is not None and is_valid(row)

    async def _note_use(self, row: TokenRow) -> None:
        used = replace(row, used_ms=now_ms())
        self._known[row.digest] = used
        try:
            await asyncio.to_thread(self._store.keep_account, used)
        except StoreError:  # a standby, or a store that is away
            return

    async def tokens(self) -> Sequence[TokenRow]:
        """All of them, oldest first."""
        return await self._read(self._store.tokens)

    async def create_token(
        self, user: str, role: str, expires_ms: int | None = None, label: str = ""
    ) -> tuple[TokenRow, str]:
        """A new token, and its text, which is not kept."""
        if expires_ms is not None and expires_ms <= now_ms():
            raise RequestError("a token cannot expire before it is made: give a later time.")
        text = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        row = TokenRow(
            id=secrets.token_hex(4),
            digest=digest_of(text),
            user=user,
            role=role,
            label=label,
            created_ms=now_ms(),
            expires_ms=expires_ms,
            revoked_ms=None,
            used_ms=None,
        )
        await self._keep(row)
        log.info("token created", token=row.id, user=user, role=role)
        return row, text

    async def revoke_token(self, id: str) -> TokenRow:
        """Not valid from now on, for every manager of this store."""
        for row in await self.tokens():
            if row.id == id:
                break
        else:
            raise NotFound(f"there is no token {id}: `trainmaster token list` lists all.")
        if row.revoked_ms is None:
            row = replace(row, revoked_ms=now_ms())
            await self._keep(row)
            self._known.pop(row.digest, None)
            log.info("token revoked", token=row.id, user=row.user)
        return row

    # -- users ---------------------------------------------------------------------------------------

    async def role_of(self, user: str) -> str | None:
        """The role that was given to a user; None where none was."""
        try:
            row = await asyncio.to_thread(self._store.user, user)
        except StoreError:
            return self._roles.get(user)
        role = None if row is None else row.role
        _remember(self._roles, user, role)
        return role

    async def users(self) -> Sequence[UserRow]:
        """Those whose role was set."""
        return await self._read(self._store.users)

    async def set_role(self, user: str, role: str) -> UserRow:
        row = UserRow(user, role, now_ms())
        await self._keep(row)
        log.info("role set", user=user, role=role)
        return row

    async def forget_role(self, user: str) -> UserRow:
        """The role that the user had of its own."""
        for row in await self.users():
            if row.id == user:
                break
        else:
            raise NotFound(f"{user} has no role of its own: `trainmaster user list` lists all.")
        await self._write(lambda: self._store.forget_user(user))
        log.info("role taken back", user=user, role=row.role)
        return row

    async def _read(self, ask: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(ask)
        except StoreError as error:
            raise Unavailable(str(error)) from None

    async def _keep(self, row: TokenRow | UserRow) -> None:
        await self._write(lambda: self._store.keep_account(row))

    async def _write(self, do: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(do)
        except LeadershipLost:
            raise Unavailable("this manager is a standby: ask the active one.") from None
        except StoreError as error:
            raise Unavailable(str(error)) from None


def digest_of(text: str) -> str:
    """A plain hash is right for 256 random bits: there is nothing to guess."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def is_valid(row: TokenRow) -> bool:
    return row.revoked_ms is None and (row.expires_ms is None or row.expires_ms > now_ms())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _remember(known: dict[str, T], key: str, value: T) -> None:
    if len(known) >= MOST_REMEMBERED and key not in known:
        known.clear()
    known[key] = value
