"""Policies by name for the live manager: none that needs an oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import structlog

from trainmaster.catalog import CatalogError
from trainmaster.config.options import OptionError, effective
from trainmaster.core.policy import Policy
from trainmaster.daemon.service_api import RequestError
from trainmaster.policy_files import policy_named, policy_with

log = structlog.get_logger("trainmaster.policies")

DEFAULT_POLICY = "trainmaster"
Options = tuple[tuple[str, str], ...]


def policy_of(name: str, options: Options | Mapping[str, str] = ()) -> Policy:
    """A fresh policy of that name, or a RequestError."""
    try:
        kind = policy_named(name)
        if kind.needs_oracle:
            raise RequestError(
                f"{name} must know how long every job will run, so it works in simulations only:"
                " `trainmaster policies` lists the others."
            )
        made: Policy = policy_with(name, dict(options))
    except (CatalogError, OptionError) as error:
        raise RequestError(str(error)) from None
    except OSError as error:
        raise RequestError(f"{name}: {error.filename}: {error.strerror}.") from None
    return made


def stored_options(name: str, options: Iterable[Sequence[str]]) -> Options:
    """Options from a store, without those that this version does not have any more."""
    try:
        known = {each.name for each in fields(policy_named(name).options_type)}
    except CatalogError as error:
        raise RequestError(str(error)) from None
    stated = tuple((key, value) for key, value in options)
    for key, value in stated:
        if key not in known:
            log.warning("an option is gone", policy=name, option=key, value=value)
    return tuple(each for each in stated if each[0] in known)


def stored_policy_of(name: str, options: Options) -> Policy:
    """The policy that a store names: unknown options of an older version are dropped, not refused."""
    return policy_of(name, stored_options(name, options))


def effective_options(policy: Policy) -> dict[str, object]:
    """All options of a policy with their values."""
    options: Any = getattr(policy, "options", None)
    return {} if options is None else effective(options)
