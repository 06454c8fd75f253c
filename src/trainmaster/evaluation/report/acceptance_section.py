"""The section on the goal: its table, its figure, and every miss with what it was missed by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.evaluation.report.acceptance_check import (
    CLEARLY_LOWER,
    Check,
    Criterion,
    Verdict,
)
from trainmaster.evaluation.report.comparisons import Entrant, excess, mean_jct, ratio
from trainmaster.evaluation.report.document_model import (
    Block,
    Column,
    Entry,
    Figure,
    Heading,
    Listing,
    Paragraph,
    Row,
    Table,
    Tone,
    quoted,
)
from trainmaster.evaluation.report.dot_plot import DotPanel, DotPlot, DotRow, dot_plot
from trainmaster.evaluation.report.number_format import (
    basis_words,
    change_words,
    common_unit,
    ratio_words,
    seconds_words,
    with_interval,
    with_unit,
)
from trainmaster.evaluation.report.tracks import track_words
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import ABSENT

RULE = (
    "The goal: where LAS's excess is at least 20 % of its mean JCT, an excess at least 10 % below that"
    " of the best published policy without an oracle (those called tuned are tuned on a disjoint prefix"
    " of the same trace, and the best of all is chosen with hindsight); elsewhere within 1 % of it."
    " The 99th percentile of rho and the share of jobs with rho above 1 at most 1.1 times that policy's;"
    " the largest rho at most LAS's + 1 on every seed."
)
WORDS = {
    Criterion.EXCESS: "excess",
    Criterion.RHO_P99: "99th percentile of rho",
    Criterion.RHO_OVER_1: "share of jobs with rho above 1",
    Criterion.RHO_MAX: "largest rho",
}


def goal(verdicts: Sequence[Verdict]) -> Iterator[Block]:
    """Nothing when our own policy took no part."""
    if not verdicts:
        return
    ours = verdicts[0].ours.label
    met = sum(each.is_met for each in verdicts)
    yield Heading(f"The goal for {quoted(ours)}", "goal")
    yield Paragraph(RULE, is_lead=True)
    yield Paragraph(
        f"Met on {met} of {len(verdicts)}: {_by_track(verdicts)}.{_lower_count(verdicts)}"
    )
    yield _figure(verdicts)
    yield _table(verdicts)
    misses = [each for each in verdicts if not each.is_met]
    if misses:
        yield Heading("Where it is missed, and by how much", "misses", 3)
        yield Listing(tuple(_miss(each) for each in misses))


def _by_track(verdicts: Sequence[Verdict]) -> str:
    tracks: dict[str, list[bool]] = {}
    for each in verdicts:
        tracks.setdefault(each.comparison.experiment.track, []).append(each.is_met)
    parts = [f"{track_words(track)} {sum(met)} of {len(met)}" for track, met in tracks.items()]
    return wording.listing(parts)


def _lower_count(verdicts: Sequence[Verdict]) -> str:
    sure = sum(each.to_best is not None and each.to_best.is_below for each in verdicts)
    return (
        f" On {sure} the excess lies below that of the best published policy with its whole interval"
        " (or, without one, its value)."
    )


def name_of(verdict: Verdict) -> str:
    return f"{track_words(verdict.comparison.experiment.track)}: {verdict.comparison.title}"


def _figure(verdicts: Sequence[Verdict]) -> Figure:
    names = _distinct([name_of(each) for each in verdicts])
    pairs = list(zip(names, verdicts, strict=True))
    found = {name: each.to_best for name, each in pairs if each.to_best is not None}
    limits = {
        name: room.value
        for name, each in pairs
        if name in found and (room := each.room) is not None
    }
    rows = tuple(DotRow(name, "met" if each.is_met else "missed") for name, each in pairs)
    plot = DotPlot(
        rows,
        (DotPanel("", found, limits),),
        "Excess over that of the best published policy (log scale, less is better)",
        references=(CLEARLY_LOWER, 1.0),
    )
    caption = (
        "Our excess over that of the best published policy. Filled: the goal is met; hollow: missed in"
        " some part. Lines at 0.9, the goal where waiting matters, and at 1. The upright mark is SRSF,"
        f" which knows every run time. {basis_words(list(found.values()))}"
    )
    return Figure(
        "overall-goal", caption, dot_plot(plot, "Our excess over the best published policy's")
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Rows are found by name, so each needs its own."""
    return [
        name if names.count(name) == 1 else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]


COLUMNS = (
    Column("track and workload", is_number=False),
    Column("load"),
    Column("floor"),
    Column("LAS"),
    Column("best published", is_number=False),
    Column("its mean JCT"),
    Column("ours"),
    Column("excess ratio"),
    Column("allowed"),
    Column("verdict", is_number=False),
    Column("excess / SRSF's"),
    Column("mean JCT / floor"),
)


def _table(verdicts: Sequence[Verdict]) -> Table:
    caption = (
        "The goal's table. Floor: the mean service alone at the best placement, which no policy goes"
        " below without growing jobs. LAS, best and ours: mean JCT. Excess ratio: ours over the best"
        " published policy's, with its 95 % interval where there is one. t: transient, the load is 1 or"
        " more."
    )
    return Table(caption, COLUMNS, tuple(_row(each) for each in verdicts))


def _row(verdict: Verdict) -> Row:
    comparison, ours = verdict.comparison, verdict.ours
    unit = common_unit([_floor(ours), ours.mean(mean_jct)])
    to_bound = None if verdict.bound is None else ratio(ours, verdict.bound, excess)
    entries = (
        Entry(name_of(verdict)),
        Entry(load_words(comparison.load, comparison.is_transient)),
        Entry(with_unit(_floor(ours), unit)),
        Entry(with_unit(None if verdict.las is None else verdict.las.mean(mean_jct), unit)),
        Entry(_best_words(verdict.best)),
        Entry(with_unit(verdict.best.mean(mean_jct), unit)),
        Entry(with_unit(ours.mean(mean_jct), unit)),
        Entry(_ratio_words(verdict)),
        Entry(_allowed_words(verdict), Tone.SOFT),
        _verdict_entry(verdict),
        Entry(ratio_words(None if to_bound is None else to_bound.value)),
        Entry(ratio_words(_over_floor(ours))),
    )
    return Row(entries)


def load_words(load: float | None, is_transient: bool) -> str:
    if load is None:
        return ABSENT
    return f"{load:.2f}{' t' if is_transient else ''}"


def _floor(entrant: Entrant) -> float | None:
    return entrant.mean(lambda score: score.floor_s)


def _over_floor(entrant: Entrant) -> float | None:
    whole, floor = entrant.mean(mean_jct), _floor(entrant)
    return None if whole is None or not floor else whole / floor


def _best_words(best: Entrant) -> str:
    return f"{best.label} {quoted(best.chosen)}".strip()


def _ratio_words(verdict: Verdict) -> str:
    if verdict.to_best is not None:
        return with_interval(verdict.to_best)
    check = verdict.excess_check
    return ABSENT if check is None else seconds_words(check.found)


def _allowed_words(verdict: Verdict) -> str:
    check = verdict.excess_check
    if check is None:
        return ABSENT
    bound = ratio_words(check.allowed) if verdict.to_best else seconds_words(check.allowed)
    return f"\N{LESS-THAN OR EQUAL TO} {bound}"


def _verdict_entry(verdict: Verdict) -> Entry:
    if verdict.is_met:
        return Entry("met", Tone.MET)
    if verdict.excess_check is None:
        return Entry(f"undecided: {_undecided(verdict)}", Tone.MISSED)
    return Entry("missed: " + ", ".join(c.criterion.value for c in verdict.misses), Tone.MISSED)


def _undecided(verdict: Verdict) -> str:
    ours, best = verdict.ours, verdict.best
    if ours.total(lambda score: score.unfinished):
        return "unfinished jobs"
    return "failed trials" if ours.scores.keys() != best.scores.keys() else "rejected jobs"


def _miss(verdict: Verdict) -> str:
    if verdict.excess_check is None:
        return f"{name_of(verdict)}: {_undecided(verdict)}, so there is no excess to compare."
    said = "; ".join(_check_words(check, verdict) for check in verdict.misses)
    reasons = " ".join(reason for reason in (_room_words(verdict), _jct_words(verdict)) if reason)
    return f"{name_of(verdict)}: {said}. {reasons}".strip()


def _check_words(check: Check, verdict: Verdict) -> str:
    name = WORDS[check.criterion]
    if check.criterion is Criterion.EXCESS and verdict.to_best is None:
        found, allowed = seconds_words(check.found), seconds_words(check.allowed)
        return f"{name} {found}, allowed {allowed}"
    if check.criterion is Criterion.EXCESS:
        percent = wording.significant(100 * check.missed_by, 2)
        doubt = "" if verdict.is_sure else ", within its interval"
        return (
            f"{name} {ratio_words(check.found)} of {verdict.best.label}'s where"
            f" {ratio_words(check.allowed)} is asked: missed by {percent} % of it{doubt}"
        )
    worded = wording.share if check.criterion is Criterion.RHO_OVER_1 else wording.decimal
    return f"{name} {worded(check.found)}, allowed {worded(check.allowed)}"


def _room_words(verdict: Verdict) -> str:
    """Whether the 10 % were there to be had."""
    room, check = verdict.room, verdict.excess_check
    if room is None or check is None or check.is_met or verdict.bound is None:
        return ""
    reach = f"{verdict.bound.label}, which knows every run time, reaches {ratio_words(room.value)}"
    if room.value > check.allowed:
        return f"Not there to be had by order: {reach}."
    return f"({reach}.)"


def _jct_words(verdict: Verdict) -> str:
    """Where little waiting is at stake, what the miss means for a job."""
    if verdict.matters:
        return ""
    whole = ratio(verdict.ours, verdict.best, mean_jct)
    if whole is None:
        return ""
    part = verdict.best.mean(excess), verdict.best.mean(mean_jct)
    if part[0] is None or not part[1]:
        return ""
    return (
        f"Excess is only {wording.share(part[0] / part[1])} of the mean JCT there; the mean JCT is"
        f" {change_words(whole.value)}."
    )
