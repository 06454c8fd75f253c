"""What the shell offers on Tab: names of policies, their options, formats, performance models, jobs."""

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


def live_jobs(incomplete: str) -> list[str]:
    """Ids and names of jobs that have not ended; nothing where no manager answers."""
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.errors import Complaint
    from trainmaster.model.job_state import LIVE_STATES

    try:
        found = connect(None, None).get("/jobs", {"state": ",".join(LIVE_STATES), "limit": 200})
    except Complaint:
        return []
    words = [str(row[key]) for row in found["jobs"] for key in ("id", "name") if row.get(key)]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
