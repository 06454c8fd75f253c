"""`trainmaster policies`: what there is to choose from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from trainmaster.cli import completion
from trainmaster.cli.wording import examples, screen

EPILOG = examples(
    "trainmaster policies",
    "trainmaster policies tiresias-l",
    "trainmaster policies --json",
)


@dataclass(frozen=True, slots=True)
class Description:
    """A policy as its file describes it."""

    name: str
    summary: str
    text: str
    needs_oracle: bool
    options: tuple[Any, ...]


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
    from trainmaster.catalog import policy_names

    names = policy_names() if name is None else (name,)
    found = [describe(each) for each in names]
    if as_json:
        _write_json(found)
    elif name is None:
        _show_all(found)
    else:
        _show_one(found[0])


def describe(name: str) -> Description:
    from trainmaster.catalog import policy_class
    from trainmaster.policies.options import describe_options

    kind = policy_class(name)
    module = sys.modules[kind.__module__]
    text = (kind.__doc__ if _has_own_doc(kind) else module.__doc__) or ""
    summary, _, rest = text.strip().partition("\n")
    return Description(
        name=name,
        summary=summary.strip(),
        text=rest.strip(),
        needs_oracle=bool(kind.needs_oracle),
        options=describe_options(kind.options_type),
    )


def _has_own_doc(kind: type) -> bool:
    return bool(vars(kind).get("__doc__"))


def _write_json(found: list[Description]) -> None:
    import json

    entries = [
        {
            "name": each.name,
            "summary": each.summary,
            "needs_oracle": each.needs_oracle,
            "options": [
                {
                    "name": option.name,
                    "default": option.default,
                    "allowed": option.allowed,
                    "help": option.help_text,
                }
                for option in each.options
            ],
        }
        for each in found
    ]
    sys.stdout.write(json.dumps({"policies": entries}, indent=2) + "\n")


def _show_all(found: list[Description]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for each in found:
        oracle = " [yellow](oracle: knows true run times)[/]" if each.needs_oracle else ""
        table.add_row(f"[bold]{escape(each.name)}[/]", f"{escape(each.summary)}{oracle}")
        for option in each.options:
            help_text = f"[dim]{escape(option.help_text)}[/]"
            table.add_row("", f"  {option.name}={escape(str(option.default))}  {help_text}")
    screen().print(table)


def _show_one(policy: Description) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = screen()
    console.print(f"[bold]{escape(policy.name)}[/]: {escape(policy.summary)}")
    if policy.text:
        console.print(f"\n{escape(policy.text)}")
    if policy.needs_oracle:
        console.print("\nIt knows true run times: for comparison only, in the simulator only.")
    if not policy.options:
        console.print("\nIt has no options.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("option", "default", "allowed", "meaning"):
        table.add_column(heading, header_style="bold")
    for option in policy.options:
        words = (str(option.default), option.allowed, option.help_text)
        table.add_row(f"--set {option.name}", *map(escape, words))
    console.print()
    console.print(table)
