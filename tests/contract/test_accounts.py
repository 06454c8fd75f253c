"""Tokens and roles in every store: what one manager revokes, another refuses at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.contract.stores import batch, job
from trainmaster.daemon import accounts as tokens
from trainmaster.daemon.accounts import Accounts
from trainmaster.daemon.admin_token import FILE, ensure_admin_token, token_in_file
from trainmaster.daemon.request_errors import NotFound, RequestError, Unavailable
from trainmaster.daemon.unix_users import own_name
from trainmaster.store.store import Store

DAY_MS = 24 * 3600 * 1000


def test_a_token_is_valid_until_it_expires_or_is_revoked_for_every_manager(
    store: Store, opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = Accounts(store), Accounts(opened())

    async def act() -> None:
        row, text = await ours.create_token("ada", "user", tokens.now_ms() + DAY_MS)
        found = await others.token_of(text)
        assert found is not None
        assert (found.id, found.user, found.role) == (row.id, "ada", "user")
        assert text not in repr(store.tokens())
        assert await ours.token_of(text[:-1]) is None
        assert await ours.token_of(f"{text}x") is None
        later = tokens.now_ms() + 2 * DAY_MS
        with monkeypatch.context() as patched:
            patched.setattr(tokens, "now_ms", lambda: later)
            assert await others.token_of(text) is None
        with monkeypatch.context() as patched:
            patched.setattr(Store, "tokens", None)  # not all of them are read
            assert await others.is_valid(row.id)
            assert not await others.is_valid("0")
        await ours.revoke_token(row.id)
        assert await others.token_of(text) is None
        assert not await others.is_valid(row.id)
        assert not await ours.is_valid(row.id)
        with pytest.raises(NotFound, match="there is no token 0"):
            await ours.revoke_token("0")
        with pytest.raises(RequestError, match="before it is made"):
            await ours.create_token("ada", "user", 1)

    asyncio.run(act())


def test_only_the_leader_makes_tokens(store: Store, opened: Callable[[], Store]) -> None:
    with pytest.raises(Unavailable, match="standby"):
        asyncio.run(Accounts(opened()).create_token("ada", "user"))
    assert store.tokens() == []


def test_what_was_valid_stays_so_while_the_store_is_away_and_nothing_else(store: Store) -> None:
    accounts = Accounts(store)

    async def act() -> None:
        _, used = await accounts.create_token("ada", "user")
        _, unused = await accounts.create_token("bob", "admin")
        await accounts.set_role("eve", "operator")
        assert await accounts.role_of("eve") == "operator"
        assert await accounts.token_of(used) is not None
        store.close()
        found = await accounts.token_of(used)
        assert found is not None
        assert found.user == "ada"
        assert await accounts.role_of("eve") == "operator"
        assert await accounts.role_of("mallory") is None
        with pytest.raises(Unavailable, match="cannot be checked now"):
            await accounts.token_of(unused)

    asyncio.run(act())


def test_the_token_of_the_data_folder_is_valid_while_the_store_is_away(
    store: Store, tmp_path: Path
) -> None:
    asyncio.run(ensure_admin_token(Accounts(store), tmp_path))
    text = (tmp_path / FILE).read_text().strip()
    store.close()
    after_a_restart = Accounts(store, partial(token_in_file, tmp_path))
    found = asyncio.run(after_a_restart.token_of(text))
    assert found is not None
    assert found.role == "admin"
    with pytest.raises(Unavailable):
        asyncio.run(after_a_restart.token_of(f"{text}x"))


def test_when_a_token_was_last_used_is_kept(store: Store) -> None:
    accounts = Accounts(store)

    async def act() -> None:
        _, text = await accounts.create_token("ada", "user")
        await accounts.token_of(text)
        while store.tokens()[0].used_ms is None:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(act(), 60))


def test_roles_are_set_and_changed(store: Store) -> None:
    accounts = Accounts(store)

    async def act() -> None:
        assert await accounts.role_of("ada") is None
        await accounts.set_role("ada", "operator")
        await accounts.set_role("ada", "viewer")
        assert await accounts.role_of("ada") == "viewer"
        assert [row.id for row in await accounts.users()] == ["ada"]
        assert (await accounts.forget_role("ada")).role == "viewer"
        assert await accounts.role_of("ada") is None
        with pytest.raises(NotFound, match="ada has no role of its own"):
            await accounts.forget_role("ada")

    asyncio.run(act())


def test_names_are_looked_up_among_the_jobs_of_one_user(store: Store) -> None:
    store.append([batch(1, job("1"), replace(job("2"), user="bob"))])
    found = {user: store.named("train", user) for user in ("ann", "bob", None, "eve")}
    assert {user: row and row.id for user, row in found.items()} == {
        "ann": "1",
        "bob": "2",
        None: "2",
        "eve": None,
    }


def test_the_admin_token_is_written_once_and_renewed_where_it_is_gone_or_open(
    store: Store, tmp_path: Path
) -> None:
    accounts, place = Accounts(store), tmp_path / FILE

    def ensure() -> bool:
        return asyncio.run(ensure_admin_token(accounts, tmp_path))

    def user() -> str | None:
        row = asyncio.run(accounts.token_of(place.read_text().strip()))
        return None if row is None else f"{row.user} {row.role}"

    assert ensure()
    assert place.stat().st_mode & 0o777 == 0o600
    assert user() == f"{own_name()} admin"
    assert not ensure()
    first = place.read_text()
    place.unlink()
    assert ensure()
    assert user() == f"{own_name()} admin"
    assert asyncio.run(accounts.token_of(first.strip())) is None, "the lost one is revoked"
    place.chmod(0o644)
    assert ensure()
    place.unlink()
    (tmp_path / "elsewhere").write_text(first)
    place.symlink_to(tmp_path / "elsewhere")
    assert ensure()
    assert not place.is_symlink()
    assert (tmp_path / "elsewhere").read_text() == first, "a link is not followed"
