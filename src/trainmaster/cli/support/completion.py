"""What the shell offers on Tab: names of policies, their options, formats, worlds."""

from __future__ import annotations

from collections.abc import Iterator


def policies(incomplete: str) -> list[str]:
    """The last name of a comma list, without those that are there already."""
    from trainmaster.catalog import policy_names

    before, comma, _ = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in policy_names() if name not in taken]


def one_policy(incomplete: str) -> list[str]:
    from trainmaster.catalog import policy_names

    return [name for name in policy_names() if name.startswith(incomplete)]


def settings(incomplete: str) -> list[str]:
    """`key=` of any policy of ours, and `policy.key=`."""
    return [each for each in dict.fromkeys(_settings()) if each.startswith(incomplete)]


def _settings() -> Iterator[str]:
    from dataclasses import fields

    from trainmaster.catalog import policy_class, policy_names

    keys = {
        name: [each.name for each in fields(policy_class(name).options_type)]
        for name in policy_names()
    }
    yield from (f"{key}=" for names in keys.values() for key in names)
    yield from (f"{policy}.{key}=" for policy, names in keys.items() for key in names)


def formats(incomplete: str) -> list[str]:
    from trainmaster.traces.formats import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


def worlds(incomplete: str) -> list[str]:
    return [name for name in ("ideal", "default") if name.startswith(incomplete)]


def suites(incomplete: str) -> list[str]:
    from trainmaster.evaluation.suites import suite_names

    return [name for name in suite_names() if name.startswith(incomplete)]
