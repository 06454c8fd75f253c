"""Options that `simulate` and `compare` share."""

from __future__ import annotations

from trainmaster.cli.support import completion
from trainmaster.cli.support.options import option

POLICIES = "Policies with commas between, or paths of one-file policies; the first is the baseline"
SHAPE = "Cluster: 15x4 (nodes x GPUs), 4x15x4 (racks x nodes x GPUs), or a YAML file."
EVERY = "Option of every named policy that has it; POLICY.KEY=VALUE is for one of them."
TRACE_FORMAT = "Format of the trace. Default: recognised by its header."
SPEEDS = "Performance model: speed by placement, interference, cost of switching, failures. Default: default."
KNOWN = "What policies know of run times: exactly, with an error of up to F (0 to 1), or nothing."

FAILING = (
    "Reasons of failures: unknown (trace), or drawn from the failure table of Microsoft's Philly study"
    " (study), which also chooses jobs that fail where nothing fails in the trace."
)
RULES = (
    "Rules about failures, with commas between: retry (only where it may help), prerun or prerun:SECONDS"
    " (first on one device), inputs (blocked where they fail across jobs)."
)

CLUSTER = option("--cluster SHAPE|FILE", SHAPE)
POLICY = option("--policy NAME,...", f"{POLICIES}.", autocompletion=completion.policies)
SET_OPTION = option("--set KEY=VALUE", EVERY, autocompletion=completion.settings)
FORMAT = option("--format NAME", TRACE_FORMAT, autocompletion=completion.formats)
QUEUES = option("--queues FILE", "Queues with weights, guaranteed and maximum GPUs, as YAML.")
PERF = option("--perf ideal|default|FILE", SPEEDS, autocompletion=completion.perf_models)
ESTIMATES = option("--estimates exact|noisy:F|none", KNOWN)
FAILURES = option("--failures trace|study", FAILING)
FAILURE_RULES = option("--failure-rules RULE,...", RULES)
