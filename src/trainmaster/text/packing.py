"""Why a job shares a GPU with others, or does not, in one sentence."""

from __future__ import annotations

from trainmaster.model.packing_score import Evidence, PackingScore, Verdict
from trainmaster.model.units import NOMINAL
from trainmaster.text.reasons import names

BY = {
    Evidence.MEASURED: "measured while such jobs were together",
    Evidence.LEARNED: "predicted from such jobs beside others",
    Evidence.PUBLISHED: "published for these models",
    Evidence.UTILISATION: "predicted from how busy each keeps a GPU",
}
ALONE = "of what one of them does alone"


def packing_sentence(score: PackingScore) -> str:
    """`It shares a GPU with job 4: together they do 1.52 of what one of them does alone, measured ...`"""
    beside, by = names(score.others), "" if score.evidence is None else f", {BY[score.evidence]}"
    both, least = _part(sum(score.rates)), _part(score.least_ppm)
    slowest = _part(min(score.rates, default=0))
    apart = f"It does not share a GPU with {beside}"
    match score.verdict:
        case Verdict.PACKED:
            return f"It shares a GPU with {beside}: together they do {both} {ALONE}{by}."
        case Verdict.ON_TRIAL:
            expected = f": together they should do {both} {ALONE}{by}" if score.rates else ""
            return f"It shares a GPU with {beside} until it has been measured whether that pays{expected}."
        case Verdict.TOO_LITTLE:
            return f"{apart}: together they would do {both} {ALONE}{by}, and {least} is asked for."
        case Verdict.TOO_SLOW:
            return f"{apart}: one would keep {slowest} of its speed{by}, and {least} is asked for."
        case Verdict.UNDONE:
            return f"{apart}: they were tried, and together did no more than one of them alone."
        case Verdict.NO_MEMORY:
            return f"{apart}: the GPU has not enough memory for all of them."
        case Verdict.UNKNOWN:
            return f"{apart}: it is not known how fast they would be together."


def _part(ppm: int) -> str:
    return f"{ppm / NOMINAL:.2f}"
