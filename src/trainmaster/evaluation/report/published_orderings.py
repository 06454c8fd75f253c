"""The section on published orderings: each claim, where it held and where it did not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.evaluation.report.comparisons import Comparison
from trainmaster.evaluation.report.document_model import (
    Block,
    Column,
    Entry,
    Heading,
    Listing,
    Paragraph,
    Row,
    Table,
    Tone,
    plain,
)
from trainmaster.evaluation.report.number_format import ratio_words, with_interval
from trainmaster.evaluation.report.published_claims import Instance, Outcome, Weighed, weigh
from trainmaster.evaluation.statistics import geometric_mean
from trainmaster.text import formatting as wording

COLUMNS = (
    Column("claim", is_number=False),
    Column("by whom", is_number=False),
    Column("measure", is_number=False),
    Column("held"),
    Column("draw"),
    Column("reversed"),
    Column("ratio"),
    Column("lowest"),
    Column("highest"),
)


def orderings(found: Sequence[Comparison]) -> Iterator[Block]:
    weighed = weigh(found)
    if not weighed:
        return
    yield Heading("The published orderings", "orderings")
    yield Paragraph(
        "Each claim on every comparison in which both sides took part; not the papers' numbers, which"
        " belong to their clusters and traces, but who comes before whom. A draw: the interval reaches"
        " over 1 or, without one, the two are within 1 %."
    )
    yield Table(
        "Published orderings. Ratio: the geometric mean over the comparisons, below 1 speaks for the"
        " claim; lowest and highest: the single comparisons.",
        COLUMNS,
        tuple(_row(each) for each in weighed),
    )
    against = tuple(_against(each) for each in weighed if each.count(Outcome.REVERSED))
    if against:
        yield Heading("Where they did not hold", "reversed", 3)
        yield Listing(against)


def _row(weighed: Weighed) -> Row:
    values = [each.found.value for each in weighed.instances]
    turned = weighed.count(Outcome.REVERSED)
    held = weighed.count(Outcome.HELD)
    claim = weighed.claim
    return Row(
        (
            *plain(str(claim), claim.source, claim.measured),
            Entry(str(held), Tone.MET if held and not turned else Tone.PLAIN),
            Entry(str(weighed.count(Outcome.DRAW))),
            Entry(str(turned), Tone.MISSED if turned else Tone.PLAIN),
            *plain(
                ratio_words(geometric_mean(values)),
                ratio_words(min(values)),
                ratio_words(max(values)),
            ),
        )
    )


def _against(weighed: Weighed) -> str:
    turned = [each for each in weighed.instances if each.outcome is Outcome.REVERSED]
    turned.sort(key=lambda each: -each.found.value)
    named = [_place(each) for each in turned[:6]]
    if len(turned) > len(named):
        named.append(f"{len(turned) - len(named)} more")
    return f"{weighed.claim}: reversed on {wording.listing(named)}."


def _place(instance: Instance) -> str:
    comparison = instance.comparison
    where = f"{comparison.experiment.title}: {comparison.title}"
    return f"{where} ({with_interval(instance.found)})"
