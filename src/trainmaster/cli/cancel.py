"""`trainmaster cancel`: end jobs for good."""

from __future__ import annotations

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, JobNames, Url

EPILOG = examples("trainmaster cancel 12", "trainmaster cancel 12 13_4 sweep")


def cancel(jobs: JobNames, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """Cancel jobs: each is asked to stop, and killed after its grace period."""
    from trainmaster.cli.support.bulk_action import do_to_each

    do_to_each(jobs, "cancel", as_json, url, data)
