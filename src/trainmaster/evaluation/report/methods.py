"""The section on methods: what was measured how, what is charged, what is not claimed, what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from trainmaster.evaluation.comparisons import Comparison
from trainmaster.evaluation.score import BLOCKS, SERVICE_FLOOR_S, Campaign
from trainmaster.evaluation.statistics import RESAMPLES
from trainmaster.evaluation.suite import WARM_UP, Contender
from trainmaster.report.document import (
    Block,
    Column,
    Heading,
    Listing,
    Paragraph,
    Row,
    Table,
    plain,
    quoted,
)


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


MEASURED = (
    "Load: sum of GPUs x service / (GPUs of the cluster x arrival span), as realised. Generated"
    " arrivals are scaled to hit the wanted load. From a load of 1 on the queue grows for as long as"
    " jobs arrive, so means depend on the span: such results are labelled transient.",
    f"Window: jobs submitted in the first {_percent(WARM_UP)} of the span fill the cluster and are not"
    " measured, unless an experiment measures all. Generated streams go on arriving after the measured"
    " window, so that it ends under load; what part of the measured jobs nevertheless ended after the"
    " last arrival is given with every workload. A simulation ends when all measured jobs have.",
    "Excess: mean of JCT - service alone at the best placement. Jobs that are killed or fail consume"
    " GPUs like the others; the mean JCT is given over all and over those that passed.",
    "rho: JCT / (service x max(1, GPUs x N / GPUs of the cluster)), N = mean number of unfinished jobs"
    f" over its life, no service counted as less than {SERVICE_FLOOR_S} s: above 1 is slower than with an"
    " equal share.",
    "Seeds are paired: every contender meets the same jobs. Ratios are geometric means of the ratios"
    f" per seed; intervals hold 95 % of {RESAMPLES:,} bootstrap resamples over seeds.",
    f"A trace that exists once has no seeds. Its ratios are resampled over {BLOCKS} runs of consecutive"
    " submissions; a backlog reaches from one run into the next, so such an interval is rather too"
    " narrow, and what would happen on another trace it does not tell.",
    "Tuned contenders try a grid of settings on the jobs before the measured ones and keep the best;"
    " these jobs are not measured.",
    "Policies are told no run times, except where an experiment on estimates says so. Bounds know"
    " them all.",
)
CHARGED = (
    "launching: every launch of a job after its first; the first is part of the run times of the traces,"
    " which were measured from the launch on, and conditions may add to it",
    "changing hands: saving and loading a job's GPU memory by its bytes, and the restart, on all GPUs of"
    " its gang; under freezing also the host memory that frozen jobs hold",
    "failing nodes: the time until a failure is noticed, in which whole gangs hold their GPUs and stand"
    " still; work lost since the last checkpoint; the restart of the whole gang; and every attempt that"
    " the trace says failed",
    "where conditions say that suspending does not save: work lost since the last checkpoint at every"
    " preemption",
    "learning: profiling ahead of a job's first run, on its GPUs, where conditions state a time for it;"
    " trial pairs, trial moves and trial factors are ordinary runs and hold GPUs like any other",
    "fragmentation: a gang starts whole or not at all, and only where its GPUs are; distance by the"
    " model's sensitivity",
    "company: other jobs on the same GPU, and gangs on the same server, switch or NIC",
)
NOT_CHARGED = (
    "the writing of periodic checkpoints",
    "what is known of a model by its name: published tables, the same for all policies",
    "the policy's own thinking time",
)
NOT_CLAIMED = (
    "a paper's absolute numbers: clusters, traces and implementations differ",
    "gains from packing or elasticity on the Philly trace as measured there: which model a job trains"
    " and how far it scales is not in the trace and was assigned here",
    "anything about a cluster whose speeds and costs differ from the stated ones",
)


def methods(campaign: Campaign, found: Sequence[Comparison]) -> Iterator[Block]:
    yield Heading("Methods", "methods")
    yield Listing(MEASURED)
    yield Heading("What is charged", "charged", 3)
    yield Paragraph("Under conditions other than the ideal ones, the simulator charges:")
    yield Listing(CHARGED)
    yield Paragraph("It does not charge:")
    yield Listing(NOT_CHARGED)
    yield Heading("What is not claimed", "not-claimed", 3)
    yield Listing(NOT_CLAIMED)
    yield _contenders(found)
    yield _conditions(found)
    yield from _missing(campaign, found)


def _contenders(found: Sequence[Comparison]) -> Table:
    """Who is behind each label, over the whole suite."""
    lines = dict.fromkeys(_line(each.contender) for c in found for each in c.entrants)
    rows = tuple(Row(plain(*line)) for line in lines)
    columns = tuple(
        Column(title, is_number=False)
        for title in ("contender", "policy", "standing", "settings", "tuned over")
    )
    caption = (
        "The contenders. A label with several lines has other settings in other experiments: each"
        " policy is given the same permissions (packing, resizing, estimates) as the others there."
    )
    return Table(caption, columns, rows, is_folded=len(rows) > 12)


def _line(contender: Contender) -> tuple[str, str, str, str, str]:
    settings = " ".join(f"{key}={value}" for key, value in sorted(contender.settings.items()))
    tried = len(contender.grid)
    tuned = f"{tried} settings" if tried else ""
    standing = contender.standing.value
    return (contender.label, contender.policy, standing, quoted(settings), tuned)


def _conditions(found: Sequence[Comparison]) -> Table:
    """What each name of conditions stands for."""
    columns = tuple(
        Column(title, is_number=False) for title in ("conditions", "perf", "estimates", "used in")
    )
    used: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        conditions = each.conditions
        line = (conditions.name, quoted(_perf_words(conditions.perf)), conditions.estimates)
        experiments = used.setdefault(line, [])
        if each.experiment.name not in experiments:
            experiments.append(each.experiment.name)
    rows = tuple(Row(plain(*line, ", ".join(names))) for line, names in used.items())
    caption = "The conditions: what `--perf` and `--estimates` would be given."
    return Table(caption, columns, rows, is_folded=len(rows) > 12)


def _perf_words(perf: str | Mapping[str, object]) -> str:
    return perf if isinstance(perf, str) else json.dumps(perf, default=dict)


def _missing(campaign: Campaign, found: Sequence[Comparison]) -> Iterator[Block]:
    """What a reader might look for and not find."""
    skipped = tuple(f"{each.experiment}, {each.what}: {each.why}" for each in campaign.skipped)
    if skipped:
        yield Heading("What was skipped", "skipped", 3)
        yield Listing(tuple(dict.fromkeys(skipped)))
    failures = tuple(f"{each.trial}: {each.error}" for each in campaign.failures)
    if failures:
        yield Heading("What failed", "failures", 3)
        yield Listing(failures)
    remarks = tuple(_remarks(found))
    if remarks:
        yield Heading("Remarks", "remarks", 3)
        yield Listing(remarks)


def _remarks(found: Sequence[Comparison]) -> Iterator[str]:
    for comparison in found:
        for entrant in comparison.entrants:
            said = [(s, words) for s, score in entrant.scores.items() for words in score.remarks]
            if said:
                seed, words = said[0]
                more = f" ({len(said) - 1} more such)" if len(said) > 1 else ""
                where = f"{comparison.experiment.name}, {comparison.title}"
                yield f"{where}, {entrant.label}, seed {seed}: {words}{more}"
