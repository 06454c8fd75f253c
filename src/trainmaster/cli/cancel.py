"""`trainmaster cancel`: end jobs for good."""

from __future__ import annotations

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, JobNames, Url

EPILOG = examples("trainmaster cancel 12", "trainmaster cancel 12 13_4 sweep")


def cancel(jobs: JobNames, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """End jobs: told to stop, given their grace period, then killed; arrays as a whole."""
    from trainmaster.cli.support.bulk_action import do_to_each

    do_to_each(jobs, "cancel", as_json, url, data)
