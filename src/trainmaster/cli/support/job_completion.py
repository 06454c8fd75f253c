"""What the shell offers on Tab that only a running daemon knows."""

from __future__ import annotations


def live_jobs(incomplete: str) -> list[str]:
    """Ids and names of jobs that have not ended; nothing where no daemon answers."""
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.errors import Complaint
    from trainmaster.cli.support.job_rows import LIVE_STATES

    try:
        found = connect(None, None).get("/jobs", {"state": ",".join(LIVE_STATES), "limit": 200})
    except Complaint:
        return []
    words = [str(row[key]) for row in found["jobs"] for key in ("id", "name") if row.get(key)]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
