"""Names of users that this machine does not have: they may be misspelled."""

from __future__ import annotations

import pwd

from trainmaster.cli.support.console import remark
from trainmaster.client.manager_api import ManagerApi
from trainmaster.text.suggest import did_you_mean

EVERYBODY = "*"
FIRST_PERSON = 1000
"""The least number of an account that a person has; those below are of programs."""


def note_unknown_user(client: ManagerApi, name: str | None) -> None:
    """Say so where the manager is on this machine; its users may also be known by tokens alone."""
    if name in (None, EVERYBODY) or client.url.startswith("https:"):
        return
    accounts = pwd.getpwall()
    if any(each.pw_name == name for each in accounts):
        return
    people = [each.pw_name for each in accounts if each.pw_uid >= FIRST_PERSON or each.pw_uid == 0]
    near = did_you_mean(name or "", people, "")
    guess = f"; {near}" if near else "."
    remark("Note", [f"this machine has no user {name}{guess}"])
