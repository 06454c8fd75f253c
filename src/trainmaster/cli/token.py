"""`trainmaster token`: tokens for other machines and programs, and links that open the page."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from trainmaster.api.front import SHA256
from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import (
    remark,
    say,
    show_answer,
    show_table,
    write_error,
    write_json,
)
from trainmaster.cli.support.errors import print_error
from trainmaster.cli.support.format import ago, at, seconds_of
from trainmaster.cli.support.options import AsJson, TokenFile, argument, option
from trainmaster.cli.support.unknown_users import note_unknown_user
from trainmaster.client.known_managers import KnownManager, known_managers, remember
from trainmaster.client.manager_api import Json, ManagerApi, RequestRefused
from trainmaster.errors import FAILED, BadInput, cannot_write

NEVER = "never"
COLUMNS = ("id", "user", "role", "name", "made", "expires", "last used")
USER = "Whose jobs are its own. Default: you."
ROLE = "What it may do: see all jobs, use its own, change every job and the cluster, or everything."
EXPIRES = "How long it is valid, such as 12h or 30d; never: until it is revoked."
OUT = "Write it into this new file, readable by you alone, and not to the terminal."
FINGERPRINT = "SHA-256 fingerprint of its certificate, as `trainmaster status` shows it there."
Role = Literal["viewer", "user", "operator", "admin"]
SHA256_DIGITS = 64
TOKEN_ID = re.compile("[0-9a-f]{1,32}")


def token(client: ManagerApi, context: typer.Context, as_json: AsJson = False) -> None:
    """Make, list and revoke tokens, choose a manager on another machine, open the page in a browser.

    On the manager's machine no token is needed: its socket knows who asks.

    Examples:
        trainmaster token new --user ada --expires 30d
        trainmaster token list
        trainmaster token revoke 5f0c2e7b
        trainmaster token use https://tower:8470
        trainmaster token link
    """
    if context.invoked_subcommand is None:
        show_tokens(client, as_json)


app = group(token)


@command(app)
def new(
    client: ManagerApi,
    user: Annotated[str | None, option("--user USER", USER)] = None,
    role: Annotated[Role, option("--role viewer|user|operator|admin", ROLE)] = "user",
    expires: Annotated[str, option("--expires TIME|never", EXPIRES)] = "90d",
    name: Annotated[str, option("-n --name NAME", "What it is for, for the list.")] = "",
    out: Annotated[Path | None, option("--out FILE", OUT)] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is shown this once: the manager keeps only a hash of it.

    Who has it acts as its user from any machine that reaches the manager, within its role, until it
    expires or is revoked.

    Examples:
        trainmaster token new --user ada --expires 30d --name laptop
        trainmaster token new --user ci --out ci.token
        trainmaster token new --user wall --role viewer --expires never
    """
    if expires != NEVER:
        seconds_of(expires, "--expires")
    wanted = {
        "user": user or client.caller()["user"],
        "role": role,
        "expires": None if expires == NEVER else expires,
        "label": name,
    }
    if out is not None and out.exists():
        raise BadInput(f"--out {out} is there already: name a new file.")
    made = client.post("/tokens", wanted)
    if out is not None:
        _write_secret(out, made.pop("token"))
        show_answer(made, as_json, f"Token {_described(made)}, is in {out}.")
    elif as_json:
        write_json(made)
    else:
        say(made["token"])
        remark("Note", [f"Token {_described(made)}. It is not shown again."])
    note_unknown_user(client, user)


def _described(made: Json) -> str:
    until = "until it is revoked" if made["expires_s"] is None else f"until {at(made['expires_s'])}"
    return f"{made['id']} for {made['user']}, {made['role']}, valid {until}"


def _write_secret(path: Path, token: str) -> None:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise cannot_write(str(path), error) from None


@command(app, "list")
def tokens(
    client: ManagerApi,
    everything: Annotated[bool, option("-a --all", "Include revoked and expired ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """List tokens: whose they are, what they may do, until when, and when each was last used.

    Examples:
        trainmaster token list
        trainmaster token list --all --json
    """
    show_tokens(client, as_json, everything)


def show_tokens(client: ManagerApi, as_json: bool, everything: bool = False) -> None:
    import time

    found = client.get("/tokens")["tokens"]
    now = time.time()
    valid = [each for each in found if everything or _is_valid(each, now)]
    if as_json or not valid:
        show_answer({"tokens": valid}, as_json, "No tokens: `trainmaster token new` makes one.")
    else:
        show_table(COLUMNS, [_row(each, now) for each in valid])


def _is_valid(each: Json, now: float) -> bool:
    return each["revoked_s"] is None and (each["expires_s"] is None or each["expires_s"] > now)


def _row(each: Json, now: float) -> list[str]:
    if each["revoked_s"] is not None:
        until = f"revoked {at(each['revoked_s'])}"
    elif each["expires_s"] is None:
        until = NEVER
    else:
        until = (
            at(each["expires_s"]) if _is_valid(each, now) else f"expired {at(each['expires_s'])}"
        )
    named = [each[name] for name in ("id", "user", "role", "label")]
    return [*named, at(each["created_s"]), until, ago(each["used_s"])]


@command(app)
def revoke(
    client: ManagerApi,
    ids: Annotated[list[str], argument("ID", "Tokens, by the ids that `token list` shows.")],
    as_json: AsJson = False,
) -> None:
    """Revoke tokens: from now on they are refused, and so are sessions of the page that they began.

    Examples:
        trainmaster token revoke 5f0c2e7b
    """
    from urllib.parse import quote

    has_failed = False
    for id in dict.fromkeys(ids):
        if TOKEN_ID.fullmatch(id) is None:
            print_error(f"There is no token {id}: `trainmaster token list` lists all.")
            has_failed = True
            continue
        try:
            row = client.delete(f"/tokens/{quote(id, safe='')}")
            show_answer(row, as_json, f"Token {id} of {row['user']} is revoked.")
        except RequestRefused as no:
            print_error(str(no))
            has_failed = True
    if has_failed:
        raise typer.Exit(FAILED)


@command(app)
def link(client: ManagerApi, as_json: AsJson = False) -> None:
    """Print a link that opens the manager's page in a browser as you: once, within ten minutes.

    Examples:
        trainmaster token link
        xdg-open "$(trainmaster token link)"
    """
    made = client.post("/login-links")
    if as_json:
        write_json(made)
    else:
        say(made["url"])


# -- managers on other machines --------------------------------------------------------------------------


@command(app)
def use(
    address: Annotated[str, argument("URL", "Address of the manager: https://HOST:PORT.")],
    fingerprint: Annotated[str | None, option("--fingerprint SHA256", FINGERPRINT)] = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Use the manager of another machine from now on: remember its address, certificate and your token.

    Its certificate is shown to be confirmed, unless an authority of this system vouches for it, and is
    the only one that is accepted there from then on. The token comes from --token-file, TRAINMASTER_TOKEN
    or the terminal. Both are kept in ~/.config/trainmaster/managers.json, readable by you alone.

    Examples:
        trainmaster token use https://tower:8470
        trainmaster token use https://tower:8470 --fingerprint sha256:3f5a… --token-file my.token
    """
    from dataclasses import replace

    from trainmaster.client.address import find_address
    from trainmaster.client.token_source import checked_token, stated_token

    place = replace(find_address(address, None), pin=None)
    if not place.is_tcp:
        raise BadInput(f"{address} is a socket of this machine, which needs no token.")
    if place.url.startswith("https:"):
        place = replace(place, pin=_confirmed(place.url, fingerprint))
    elif fingerprint is not None:
        raise BadInput(f"{address} has no certificate: write https://HOST:PORT.")
    text = stated_token(token_file)
    if text is None:
        _check_terminal("a token", "--token-file FILE or TRAINMASTER_TOKEN")
        text = checked_token(typer.prompt("Token", hide_input=True, err=True), "this")
    asked = ManagerApi.at(place, text)
    caller = asked.get("/caller")
    known = known_managers().with_manager(place.url, KnownManager(text, place.pin))
    path = remember(known)
    sentence = f"You are {caller['user']} ({caller['role']}) at {place.url}; kept in {path}."
    show_answer({**caller, "url": place.url, "fingerprint": place.pin}, as_json, sentence)


def _confirmed(url: str, stated: str | None) -> str | None:
    """The fingerprint of the certificate there, confirmed; None where an authority vouches for it."""
    from trainmaster.cli.support.certificates import is_vouched_for, seen_at

    seen = seen_at(url)
    if stated is not None:
        wanted = SHA256 + stated.lower().removeprefix(SHA256).replace(":", "")
        if len(wanted) != len(SHA256) + SHA256_DIGITS:
            raise BadInput("--fingerprint must have 64 hexadecimal digits, as `status` shows them.")
        if wanted != seen:
            raise BadInput(
                f"the certificate of {url} is {seen} and not the one of --fingerprint: somebody may be in"
                " between; compare it with what `trainmaster status` shows on that machine."
            )
        return seen
    if is_vouched_for(url):
        return None
    _check_terminal("the fingerprint of its certificate", "--fingerprint SHA256")
    write_error(
        f"The certificate of {url} is\n  {seen}\n`trainmaster status` on its machine shows the same.\n"
    )
    typer.confirm("Is it?", abort=True, err=True)
    return seen


def _check_terminal(what: str, how: str) -> None:
    if not sys.stdin.isatty():
        raise BadInput(f"it needs {what}, and there is no terminal to ask: give {how}.")


@command(app)
def forget(
    address: Annotated[str, argument("URL", "Address, as it was given to `token use`.")],
    as_json: AsJson = False,
) -> None:
    """Forget the address, certificate and token of a manager on another machine.

    The token itself stays valid until it expires or is revoked.

    Examples:
        trainmaster token forget https://tower:8470
    """
    known, url = known_managers(), address.rstrip("/")
    if url not in known.managers:
        listed = ", ".join(known.managers) or "none"
        raise BadInput(f"{url} is not known: `token use` has kept {listed}.")
    remember(known.without(url))
    show_answer({"url": url}, as_json, f"{url} is forgotten.")
