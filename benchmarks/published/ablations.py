"""The section on what each part of our own policy is worth: it without that part, against it whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.published.acceptance import rho_p99
from trainmaster.evaluation.comparisons import Comparison, Entrant, ratio
from trainmaster.evaluation.number_format import basis_words, ratio_words, with_interval
from trainmaster.evaluation.report.figures import DotPanel, dot_plot
from trainmaster.evaluation.statistics import Estimate
from trainmaster.evaluation.suite import Standing
from trainmaster.report.document import (
    Block,
    Column,
    Entry,
    Figure,
    Heading,
    Paragraph,
    Row,
    Table,
)


def ablations(found: Sequence[Comparison]) -> Iterator[Block]:
    ablated = [each for each in found if each.ours and each.of_standing(Standing.ABLATION)]
    if not ablated:
        return
    by_comparison = [(each, _ratios(each)) for each in ablated]
    labels = list(dict.fromkeys(label for _, ratios in by_comparison for label in ratios))
    yield Heading("What each part is worth", "ablations")
    yield Paragraph(
        "Our own policy with one part switched off, against the whole. Above 1: the part lowers the"
        " excess there. A part can be worth its place without that, if it is about tails."
    )
    everything = [estimate for _, ratios in by_comparison for estimate in ratios.values()]
    caption = (
        "Excess without each part over that of the whole (the mean JCT where growing jobs make an"
        f" excess negative). {basis_words(everything)}"
    )
    chart = dot_plot(
        caption,
        dict.fromkeys(labels, "ablation"),
        [DotPanel(each.title, ratios, {}) for each, ratios in by_comparison],
        "Excess without the part / excess of the whole (log scale)",
    )
    yield Figure("overall-ablations", caption, chart.svg())
    yield _table(by_comparison, labels)


def _ratios(comparison: Comparison) -> dict[str, Estimate]:
    ours = comparison.ours
    if ours is None:
        return {}
    measure = comparison.subject.measure
    pairs = ((e.label, ratio(e, ours, measure)) for e in comparison.of_standing(Standing.ABLATION))
    return {label: found for label, found in pairs if found is not None}


def _table(
    by_comparison: Sequence[tuple[Comparison, dict[str, Estimate]]], labels: Sequence[str]
) -> Table:
    columns = (
        Column("without", is_number=False),
        *(Column(each.title) for each, _ in by_comparison),
    )
    rows = tuple(
        Row(
            (
                Entry(label),
                *(Entry(_words(c, ratios, label)) for c, ratios in by_comparison),
            )
        )
        for label in labels
    )
    caption = (
        "Excess without each part over that of the whole; after the semicolon, the 99th percentile of"
        " rho over the whole's."
    )
    return Table(caption, columns, rows)


def _words(comparison: Comparison, ratios: dict[str, Estimate], label: str) -> str:
    tail = _tail(comparison.entrant(label), comparison.ours)
    return f"{with_interval(ratios.get(label))}; {ratio_words(tail)}"


def _tail(without: Entrant | None, whole: Entrant | None) -> float | None:
    if without is None or whole is None:
        return None
    above, below = without.mean(rho_p99), whole.mean(rho_p99)
    return None if above is None or not below else above / below
