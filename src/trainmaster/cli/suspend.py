"""`trainmaster suspend` and `resume`: take jobs off their devices for a while, and let them go on."""

from __future__ import annotations

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, JobNames, Url

SUSPEND_EPILOG = examples("trainmaster suspend 12", "trainmaster suspend 12 13 sweep")
RESUME_EPILOG = examples("trainmaster resume 12", "trainmaster resume 12 13 sweep")


def suspend(jobs: JobNames, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """Suspend jobs: free their devices and keep their work until they are resumed."""
    from trainmaster.cli.support.bulk_action import do_to_each

    do_to_each(jobs, "suspend", as_json, url, data)


def resume(jobs: JobNames, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """Resume suspended or held jobs as soon as devices are free."""
    from trainmaster.cli.support.bulk_action import do_to_each

    do_to_each(jobs, "resume", as_json, url, data)
