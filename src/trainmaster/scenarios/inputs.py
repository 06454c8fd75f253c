"""Turns command line arguments into inputs of a simulation: cluster, performance, estimates, queues."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainmaster.config.cluster import Cluster, cluster_from
from trainmaster.config.options import divides_queues
from trainmaster.config.performance import BASES, perf_model_from
from trainmaster.config.queues import guaranteed_in, queues_from, user_limits_from
from trainmaster.config.yaml_file import read_mapping
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.errors import BadInput
from trainmaster.input_files import read_text, read_yaml
from trainmaster.model.queue import Queue
from trainmaster.model.quota import UserLimits
from trainmaster.model.topology import ISLAND_LEVELS, SHORTHAND_LEVELS, Topology, parse_shorthand
from trainmaster.model.trace import Trace
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.perf.perf_model import PerfModel
from trainmaster.sim.driver import Estimates, estimates_from
from trainmaster.sim.failure_judge import PRERUN_MS, FailureRules
from trainmaster.text.suggest import did_you_mean

LARGEST = 1e12
NAMED = 5
"""Queues that are named before they are only counted."""
RULE_NAMES = ("retry", "prerun", "inputs")
SHORTHAND = re.compile(r"\d+(x\d+)+", re.IGNORECASE)


def cluster_of(text: str) -> Cluster:
    """A shorthand such as 4x15x4, a YAML description, or a machine list of a public trace."""
    if SHORTHAND.fullmatch(text):
        return Cluster(parse_shorthand(text))
    path = Path(text)
    if not path.exists():
        raise BadInput(
            f"--cluster {text} is neither a file nor of the form 15x4 (nodes x GPUs)"
            " or 4x15x4 (racks x nodes x GPUs)."
        )
    content = read_text(path, "the cluster file")
    listed = _machine_list(path, content)
    if listed is not None:
        return listed
    raw, lines = read_mapping(content, str(path))
    return cluster_from(raw, str(path), lines)


def _machine_list(path: Path, content: str) -> Cluster | None:
    """The cluster in Philly's machine list or in Alibaba's node list, if it is one."""
    from trainmaster.traces import alibaba_2023, philly

    header = {cell.strip() for cell in content.partition("\n")[0].split(",")}
    if header.issuperset(philly.MACHINE_COLUMNS):
        return Cluster(philly.read_machines(path))
    if header.issuperset(alibaba_2023.NODE_COLUMNS):
        return Cluster(alibaba_2023.read_nodes(path))
    return None


def perf_model_of(text: str) -> PerfModel:
    """`ideal`, `default`, or a YAML file that changes some of it."""
    if text in BASES:
        return BASES[text]
    path = Path(text)
    if not path.exists():
        hint = did_you_mean(text, BASES, "name one of these.")
        raise BadInput(f"--perf {text} is neither ideal, default nor a file; {hint}")
    raw, lines = read_yaml(path, "the perf file")
    return perf_model_from(raw, str(path), lines)


def estimates_of(text: str) -> Estimates:
    """`exact`, `none`, or `noisy:0.3` for an error of up to 30 % either way."""
    try:
        return estimates_from(text)
    except ValueError as error:
        raise BadInput(f"--estimates {text} is none of {error}.") from None


def failures_of(trace: Trace, source: str | None, seed: int) -> Trace:
    """The trace as it is, or with reasons of failures that are drawn."""
    if source in (None, "trace"):
        return trace
    if source != "study":
        raise BadInput(f"--failures {source} is neither trace nor study.")
    from trainmaster.traces.drawn_failures import draw_failures

    return draw_failures(trace, seed)


def failure_rules_of(text: str | None, source: str | None) -> FailureRules | None:
    """`retry,prerun:60,inputs`; None where neither rules nor reasons of failures were asked for."""
    if text is None and source is None:
        return None
    rules = FailureRules(reasons=built_in_table())
    for name in text.split(",") if text else ():
        word, colon, seconds = name.strip().partition(":")
        if word not in RULE_NAMES or (colon and word != "prerun"):
            hint = did_you_mean(word, RULE_NAMES)
            raise BadInput(f"--failure-rules {text}: there is no rule {name.strip()!r}; {hint}")
        if word == "retry":
            rules = replace(rules, retries=True)
        elif word == "inputs":
            rules = replace(rules, blocks_inputs=True)
        else:
            rules = replace(rules, prerun_ms=_prerun_ms(seconds) if colon else PRERUN_MS)
    return rules


def _prerun_ms(seconds: str) -> int:
    if not seconds.isdecimal() or not 0 < int(seconds) <= LARGEST:
        raise BadInput(f"--failure-rules prerun:{seconds} is not a number of seconds, such as 60.")
    return int(seconds) * SECOND


def queues_of(path: Path | None) -> dict[str, Queue]:
    if path is None:
        return {}
    raw, lines = read_yaml(path, "the queues file")
    return queues_from(raw, str(path), lines)


def user_limits_of(path: Path | None) -> tuple[UserLimits, ...]:
    if path is None:
        return ()
    raw, lines = read_yaml(path, "the queues file")
    return user_limits_from(raw, str(path), lines)


def finite(value: float, option: str) -> float:
    """A finite number of the command line, within the range of traces."""
    if not abs(value) <= LARGEST:
        raise BadInput(f"{option} must be a number of at most {LARGEST:.0e}, not {value}.")
    return value


def idle_limits(queues: Mapping[str, Queue], policies: Sequence[Any]) -> list[str]:
    """A warning where queues are guaranteed GPUs under policies that do not look at that.

    Maxima hold under every policy.
    """
    bound = [name for name, queue in queues.items() if queue.guaranteed]
    unbounded = [each.name for each in policies if not divides_queues(type(each))]
    if not bound or not unbounded:
        return []
    return [
        f"guaranteed GPUs of {_queues_named(bound)} are not enforced by {', '.join(unbounded)}."
    ]


def unmet_guarantees(
    queues: Mapping[str, Queue], topology: Topology, policies: Sequence[Any]
) -> list[str]:
    """A warning where queues are guaranteed more GPUs than there are."""
    promised = {
        name: guaranteed_in(name, queues)
        for name, queue in queues.items()
        if queue.parent is None and guaranteed_in(name, queues)
    }
    total, there = sum(promised.values()), topology.training_gpus
    if total <= there * WHOLE or not any(divides_queues(type(each)) for each in policies):
        return []
    are, together = ("are", " together") if len(promised) > 1 else ("is", "")
    gpus = f"{total / WHOLE:g} GPUs{together}"
    return [f"{_queues_named(list(promised))} {are} guaranteed {gpus}, the cluster has {there:,}"]


def _queues_named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{'queues' if len(names) > 1 else 'queue'} {', '.join(names[:NAMED])}{more}"


def check_spans(perf: PerfModel, topology: Topology) -> None:
    """A speed for a level that the cluster does not have is most likely a misspelling."""
    known = {*SHORTHAND_LEVELS, "cluster", *ISLAND_LEVELS, *topology.levels}
    locality = perf.locality
    tables = {"speed.default": locality.spans}
    tables.update({f"speed.models.{name}": table for name, table in locality.models.items()})
    for where, table in tables.items():
        for span in table:
            if span not in known:
                hint = did_you_mean(span, sorted(known))
                raise BadInput(f"{where}: the cluster has no level {span!r}; {hint}")
