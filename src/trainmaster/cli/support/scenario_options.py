"""Options that `simulate` and `compare` share."""

from __future__ import annotations

import typer

from trainmaster.cli.support import completion

POLICIES = "Policies with commas between, or paths of one-file policies; the first is the baseline"

CLUSTER = typer.Option(
    metavar="SHAPE|FILE",
    help="15x4 (nodes x GPUs), 4x15x4 (racks x nodes x GPUs), or a YAML file.",
)
POLICY = typer.Option(
    metavar="NAME,...",
    help=f"{POLICIES}.",
    autocompletion=completion.policies,
)
SET_OPTION = typer.Option(
    "--set",
    metavar="KEY=VALUE",
    help="An option of every named policy that has it; POLICY.KEY=VALUE is for one.",
    autocompletion=completion.settings,
)
FORMAT = typer.Option(
    "--format",
    metavar="NAME",
    help="Format of the trace; recognised by its header unless given.",
    autocompletion=completion.formats,
)
QUEUES = typer.Option(metavar="FILE", help="Queues with weights and bounds, as YAML.")
PERF = typer.Option(
    metavar="ideal|default|FILE",
    help="Speed by placement, interference, cost of switching, failures.",
    autocompletion=completion.worlds,
)
ESTIMATES = typer.Option(
    metavar="exact|noisy:F|none", help="What policies are told of run times; F is 0 to 1."
)
