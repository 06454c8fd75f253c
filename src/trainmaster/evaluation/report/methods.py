"""The section on methods: what was measured how, what is charged, what is not claimed, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.evaluation.report.comparisons import Comparison
from trainmaster.evaluation.report.content import (
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
from trainmaster.evaluation.score import BLOCKS, SERVICE_FLOOR_S, Campaign
from trainmaster.evaluation.statistics import RESAMPLES
from trainmaster.evaluation.suite import WARM_UP, Contender

MEASURED = (
    "Load: sum of GPUs x service / (GPUs of the cluster x arrival span), as realised. Generated"
    " arrivals are scaled to hit the wanted load. From a load of 1 on the queue grows for as long as"
    " jobs arrive, so means depend on the span: such results are labelled transient.",
    f"Window: unless an experiment says that all are, jobs submitted after the first {WARM_UP:.0%} of"
    " the span are measured; arrivals of generated streams go on until all of them have ended.",
    "Excess: mean of JCT - service alone at the best placement. Jobs that are killed or fail consume"
    " GPUs like the others; the mean JCT is given over all and over those that passed.",
    f"rho: JCT over the service that the job would take under an equal share of the cluster, no service"
    f" counted as less than {SERVICE_FLOOR_S} s.",
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
    "launch and detection latency",
    "work lost since the last checkpoint, and every attempt that failed",
    "pre-run and profiling time",
    "freezing by bytes, and the host memory of frozen jobs",
    "the restart of a whole gang when one of its parts is lost",
    "fragmentation: a job starts only where its GPUs are",
    "neighbours on the same server, switch or NIC",
)
NOT_CLAIMED = (
    "a paper's absolute numbers: clusters, traces and implementations differ",
    "gains from packing or elasticity on the Philly trace as measured there: which model a job trains"
    " is not in the trace and was assigned here",
    "anything about a cluster whose speeds and costs differ from the stated ones",
)


def methods(campaign: Campaign, found: Sequence[Comparison]) -> Iterator[Block]:
    yield Heading("Methods", "methods")
    yield Listing(MEASURED)
    yield Heading("What is charged", "charged", 3)
    yield Paragraph("Under conditions other than the ideal ones, the simulator charges:")
    yield Listing(CHARGED)
    yield Heading("What is not claimed", "not-claimed", 3)
    yield Listing(NOT_CLAIMED)
    yield _contenders(found)
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


def _missing(campaign: Campaign, found: Sequence[Comparison]) -> Iterator[Block]:
    """Whatever a reader might look for and not find."""
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
