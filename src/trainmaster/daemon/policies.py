"""Policies for the live manager: none that needs an oracle, and one that decides if none can be made."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import structlog

from trainmaster.catalog import CatalogError
from trainmaster.config.options import OptionError, effective
from trainmaster.core.policy import Policy
from trainmaster.daemon.service_api import RequestError
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.policy_files import ReadFile, class_of, content_of, line_in, policy_from

log = structlog.get_logger("trainmaster.policies")

DEFAULT_POLICY = PolicySpec("trainmaster")
FALLBACK_POLICY = PolicySpec("fifo")
"""Decides while the chosen policy cannot be made: it starts jobs in their order and preempts nothing."""


def policy_of(spec: PolicySpec, read_missing: ReadFile = content_of) -> Policy:
    """A fresh policy, or a RequestError."""
    try:
        if class_of(spec).needs_oracle:
            raise RequestError(
                f"{spec.name} must know how long every job will run, so it works in simulations only:"
                " `trainmaster policies` lists the others."
            )
        made: Policy = policy_from(spec, read_missing)
        made.first_memo()
    except RequestError:
        raise
    except (CatalogError, OptionError) as error:
        raise RequestError(str(error)) from None
    except OSError as error:
        raise RequestError(f"{spec.name}: {error.filename}: {error.strerror}.") from None
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        where = f"{spec.name}{line_in(spec.name, error)}"
        raise RequestError(f"{where} cannot be used: {what}.") from error
    return made


def stored_policy_of(spec: PolicySpec) -> Policy:
    """The policy that a store names: options that this version does not have are dropped, not refused."""
    return policy_of(_known_options(spec))


def _known_options(spec: PolicySpec) -> PolicySpec:
    try:
        known = {each.name for each in fields(class_of(spec).options_type)}
    except (CatalogError, OSError) as error:
        raise RequestError(str(error)) from None
    for key, value in spec.options:
        if key not in known:
            log.warning("an option is gone", policy=spec.name, option=key, value=value)
    return replace(spec, options=tuple(each for each in spec.options if each[0] in known))


def usable_policy(spec: PolicySpec) -> tuple[Policy, str]:
    """The policy that a store names, or the fallback and a sentence that says why."""
    try:
        return stored_policy_of(spec), ""
    except RequestError as error:
        why = str(error).rstrip(".")
        log.error("the policy cannot be used", policy=spec.name, why=why)
        trouble = (
            f"The policy {spec.name} cannot be used ({why}): {FALLBACK_POLICY.name} decides meanwhile"
            " and nothing is preempted; choose one with `trainmaster policy set`."
        )
        return policy_of(FALLBACK_POLICY), trouble


def effective_options(policy: Policy) -> dict[str, object]:
    """All options of a policy with their values."""
    options: Any = getattr(policy, "options", None)
    return {} if options is None else effective(options)
