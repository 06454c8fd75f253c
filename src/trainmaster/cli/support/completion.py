"""What the shell offers on Tab: policies, their options, formats, performance models, suites, jobs.

Typer itself leaves out what does not begin as the word that is being typed.
"""

from __future__ import annotations

from dataclasses import fields


def policies(incomplete: str) -> list[str]:
    """The last name of a comma list, without those that are there already."""
    before, comma, _ = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in one_policy() if name not in taken]


def one_policy() -> list[str]:
    from trainmaster.catalog import policy_names

    return list(policy_names())


def settings() -> list[str]:
    """`key=` of any policy of ours, and `policy.key=`."""
    from trainmaster.catalog import policy_class

    pairs = [
        (name, each) for name in one_policy() for each in fields(policy_class(name).options_type)
    ]
    keys = dict.fromkeys(f"{each.name}=" for _, each in pairs)
    return [*keys, *(f"{policy}.{each.name}=" for policy, each in pairs)]


def formats() -> list[str]:
    from trainmaster.traces.formats import FORMATS

    return list(FORMATS)


def perf_models() -> list[str]:
    return ["ideal", "default"]


def suites() -> list[str]:
    from trainmaster.evaluation.suites import suite_names

    return list(suite_names())


def live_jobs() -> list[str]:
    """Ids and names of live jobs that the user may touch; nothing where no manager answers."""
    from trainmaster.client.manager_api import ManagerApi
    from trainmaster.errors import CommandError
    from trainmaster.model.job_state import LIVE_STATES

    try:
        client = ManagerApi()
        query = {"state": ",".join(LIVE_STATES), "user": client.only_own(), "limit": 200}
        found = client.get("/jobs", query)
    except CommandError:
        return []
    words = [str(row[key]) for row in found["jobs"] for key in ("id", "name") if row.get(key)]
    words = [word for word in words if word.isprintable()]  # the shell shows them as they are
    return list(dict.fromkeys(words))
