"""`trainmaster version`: of this program, and of the manager where one answers."""

from __future__ import annotations

from trainmaster import __version__
from trainmaster.cli.support.console import show_answer
from trainmaster.cli.support.options import AsJson
from trainmaster.client.manager_api import ManagerApi
from trainmaster.errors import CommandError


def version(client: ManagerApi, as_json: AsJson = False) -> None:
    """Show the version of this program, and of the manager if one runs.

    Examples:
        trainmaster version
        trainmaster version --json
    """
    try:
        manager = client.get("/status")["version"]
    except CommandError:
        manager = None
    said = f"trainmaster {__version__}"
    if manager not in (None, __version__):
        said += f" (the manager at {client.url}: {manager})"
    show_answer({"version": __version__, "manager": manager}, as_json, said)
