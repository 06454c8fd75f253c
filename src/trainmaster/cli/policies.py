"""`trainmaster policies`: what there is to choose from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support import completion
from trainmaster.cli.support.console import examples, screen

if TYPE_CHECKING:
    from trainmaster.daemon.response_models import PolicyDoc

EPILOG = examples(
    "trainmaster policies",
    "trainmaster policies tiresias-l",
    "trainmaster policies --json",
)


def policies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="One policy, in full.", autocompletion=completion.one_policy
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the policies with their options and defaults."""
    from trainmaster.api.policy_docs import documented
    from trainmaster.catalog import policy_names

    names = policy_names() if name is None else (name,)
    found = [documented(each) for each in names]
    if as_json:
        _write_json([doc for doc, _ in found])
    elif name is None:
        _show_all([doc for doc, _ in found])
    else:
        _show_one(*found[0])


def _write_json(found: list[PolicyDoc]) -> None:
    import json

    sys.stdout.write(json.dumps({"policies": found}, indent=2, default=vars) + "\n")


def _show_all(found: list[PolicyDoc]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for each in found:
        oracle = " [yellow](oracle: knows true run times)[/]" if each.needs_oracle else ""
        table.add_row(f"[bold]{escape(each.name)}[/]", f"{escape(each.summary)}{oracle}")
        for option in each.options:
            help_text = f"[dim]{escape(option.help)}[/]"
            table.add_row("", f"  {option.name}={escape(str(option.default))}  {help_text}")
    screen().print(table)


def _show_one(policy: PolicyDoc, text: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = screen()
    console.print(f"[bold]{escape(policy.name)}[/]: {escape(policy.summary)}")
    if text:
        console.print(f"\n{escape(text)}")
    if policy.needs_oracle:
        console.print("\nIt knows true run times: for comparison only, in the simulator only.")
    if not policy.options:
        console.print("\nIt has no options.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("option", "default", "allowed", "meaning"):
        table.add_column(heading, header_style="bold")
    for option in policy.options:
        words = (str(option.default), option.allowed, option.help)
        table.add_row(f"--set {option.name}", *map(escape, words))
    console.print()
    console.print(table)
