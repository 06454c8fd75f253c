"""Numbers of a comparison in words: ratios, intervals, percentages."""

from __future__ import annotations

from trainmaster.evaluation.comparisons import NEGLIGIBLE
from trainmaster.evaluation.statistics import Basis, IntervalEstimate
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import ABSENT

DAGGER = "\N{DAGGER}"
FOOTNOTE = f"{DAGGER} Negligible: both excesses are below {100 * NEGLIGIBLE:g} % of the mean JCT."


def ratio_words(value: float | None) -> str:
    """Three digits or so: 0.034, 0.87, 1.30, 12.4, 270."""
    if value is None:
        return ABSENT
    if value < 0.095:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 9.995 else wording.significant(value)


def interval_words(estimate: IntervalEstimate | None) -> str:
    """The ends in brackets; nothing where there is no interval."""
    if estimate is None or estimate.interval is None:
        return ""
    return f"[{ratio_words(estimate.low)}, {ratio_words(estimate.high)}]"


def with_interval(estimate: IntervalEstimate | None) -> str:
    """A ratio and its interval: 0.87 [0.81, 0.94]; marked where it says little."""
    if estimate is None:
        return ABSENT
    mark = DAGGER if estimate.is_negligible else ""
    return f"{ratio_words(estimate.value)}{mark} {interval_words(estimate)}".strip()


def change_words(ratio: float) -> str:
    """A ratio as people say it: 13 % lower, alike, 4.2 times."""
    if abs(ratio - 1) < 0.005:
        return "alike"
    if ratio >= 2:
        return f"{wording.significant(ratio, 2)} times"
    percent = wording.significant(100 * abs(ratio - 1), 2)
    return f"{percent} % {'lower' if ratio < 1 else 'higher'}"


def basis_words(estimates: list[IntervalEstimate]) -> str:
    """Over what intervals were drawn, for a caption."""
    said = []
    seeds = {each.number for each in estimates if each.basis is Basis.SEEDS}
    if seeds:
        low, high = min(seeds), max(seeds)
        number = str(low) if low == high else f"{low} to {high}"
        said.append(f"over {number} paired seeds")
    if any(each.basis is Basis.BLOCKS for each in estimates):
        said.append("over blocks of submissions where there is one trace")
    if not said:
        return "One trace each, so there are no intervals."
    words = f"Intervals: 95 %, bootstrap {' and '.join(said)}"
    if any(each.basis is Basis.NOTHING for each in estimates):
        words += "; none where there is one trace only"
    return f"{words}."


def load_words(load: float | None, is_transient: bool) -> str:
    if load is None:
        return ABSENT
    return f"{load:.2f}{' t' if is_transient else ''}"
