"""`trainmaster policies`: the policies there are, with their options."""

from __future__ import annotations

from typing import Annotated

from rich.markup import escape
from rich.table import Table

from trainmaster.api.policy_docs import documented
from trainmaster.catalog import policy_names
from trainmaster.cli.support import completion
from trainmaster.cli.support.console import screen, show_table, write_json
from trainmaster.cli.support.options import AsJson, argument
from trainmaster.daemon.response_models import PolicyDoc

NAME = argument("NAME", "Describe this policy in full.", autocompletion=completion.one_policy)


def policies(name: Annotated[str | None, NAME] = None, as_json: AsJson = False) -> None:
    """List the policies; with NAME, what that policy does, its options and their defaults.

    Examples:
        trainmaster policies
        trainmaster policies tiresias-l
        trainmaster policies --json
    """
    found = [documented(each) for each in (policy_names() if name is None else (name,))]
    if as_json:
        write_json({"policies": [doc for doc, _ in found]})
    elif name is None:
        _show_all([doc for doc, _ in found])
    else:
        _show_one(*found[0])


def _show_all(found: list[PolicyDoc]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for each in found:
        oracle = " [yellow](oracle: knows true run times)[/]" if each.needs_oracle else ""
        table.add_row(f"[bold]{escape(each.name)}[/]", f"{escape(each.summary)}{oracle}")
    console = screen()
    console.print(table)
    console.print("`trainmaster policies NAME` says what it does and lists its options.")


def _show_one(policy: PolicyDoc, text: str) -> None:
    console = screen()
    console.print(f"[bold]{escape(policy.name)}[/]: {escape(policy.summary)}")
    if text:
        console.print(f"\n{escape(text)}")
    if policy.needs_oracle:
        console.print("\nIt knows true run times: for comparison only, in the simulator only.")
    if not policy.options:
        console.print("\nIt has no options.")
        return
    console.print()
    rows = ((f"--set {o.name}", str(o.default), o.allowed, o.help) for o in policy.options)
    show_table(("option", "default", "allowed", "meaning"), rows, folds=True)
