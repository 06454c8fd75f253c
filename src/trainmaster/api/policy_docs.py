"""The policies as their files describe them: for `trainmaster policies` and for GET /policies."""

from __future__ import annotations

import sys

from trainmaster.daemon.response_models import PolicyDoc, PolicyOption


def policy_doc(name: str) -> PolicyDoc:
    """One policy, imported now; CatalogError if the name is unknown."""
    return documented(name)[0]


def documented(name: str) -> tuple[PolicyDoc, str]:
    """The same, and the text of its file below the summary."""
    from trainmaster.catalog import policy_class
    from trainmaster.config.options import describe_options

    kind = policy_class(name)
    module = sys.modules[kind.__module__]
    text = (kind.__doc__ if vars(kind).get("__doc__") else module.__doc__) or ""
    summary, _, rest = text.strip().partition("\n")
    options = [
        PolicyOption(each.name, each.default, each.allowed, each.help_text)
        for each in describe_options(kind.options_type)
    ]
    return PolicyDoc(name, summary.strip(), bool(kind.needs_oracle), options), rest.strip()
