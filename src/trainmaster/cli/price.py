"""`trainmaster price`: what a GPU-hour costs, by GPU type."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import remark, show_answer, show_table
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.client.manager_api import ManagerApi
from trainmaster.errors import BadInput
from trainmaster.text.suggest import did_you_mean

PRICES = "Price of a GPU-hour by GPU type, such as H200=3.20; TYPE=none takes it back."


def price(client: ManagerApi, context: typer.Context, as_json: AsJson = False) -> None:
    """Show or set what a GPU-hour costs; `trainmaster history --usage` shows the cost.

    Examples:
        trainmaster price list
        trainmaster price set H200=3.20 A100=1.10 --currency EUR
    """
    if context.invoked_subcommand is None:
        show_prices(client, as_json)


app = group(price)


@command(app, "list")
def prices(client: ManagerApi, as_json: AsJson = False) -> None:
    """List prices by GPU type.

    Examples:
        trainmaster price list --json
    """
    show_prices(client, as_json)


def show_prices(client: ManagerApi, as_json: bool) -> None:
    said = client.get("/prices")
    if as_json or not said["prices"]:
        none = "No GPU type has a price: `trainmaster price set H200=3.20 --currency EUR` sets one."
        show_answer(said, as_json, none)
        return
    heading = f"{said['currency']} per GPU-hour".strip()
    show_table(("type", heading), [[kind, f"{cost:g}"] for kind, cost in said["prices"].items()])


@command(app, "set")
def define(
    client: ManagerApi,
    stated: Annotated[list[str], argument("TYPE=PRICE", PRICES)],
    currency: Annotated[
        str | None, option("--currency NAME", "Name of the currency, such as EUR.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set prices from now on; what was used before costs what it did. Other types keep theirs.

    `trainmaster nodes` shows the types of the GPUs here.

    Examples:
        trainmaster price set H200=3.20 --currency EUR
        trainmaster price set A100=none
    """
    known = client.get("/prices")
    costs: dict[str, float | None] = dict(known["prices"])
    for each in stated:
        kind, _, text = each.rpartition("=")
        try:
            costs[kind] = None if text == "none" else float(text)
        except ValueError:
            kind = ""
        if not kind:
            raise BadInput(f"`{each}` is not a price: write H200=3.20, or H200=none.")
    wanted: dict[str, Any] = {kind: cost for kind, cost in costs.items() if cost is not None}
    name = known["currency"] if currency is None else currency
    row = client.put("/prices", {"prices": wanted, "currency": name})
    said = ", ".join(f"{kind} {cost:g}" for kind, cost in row["prices"].items()) or "none"
    show_answer(row, as_json, f"Prices per GPU-hour{f' in {name}' if name else ''}: {said}.")
    types = sorted({each["type"] for each in client.get("/nodes")["nodes"]})
    unknown = [kind for kind in costs if kind not in types and kind not in known["prices"]]
    remark(
        "Note", (f"no node has a GPU type {kind}; {did_you_mean(kind, types)}" for kind in unknown)
    )
