"""Colours that colour-blind people tell apart, one per policy, on light and on dark paper."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shade:
    """One colour, as it looks best on each paper."""

    light: str
    dark: str


POLICIES = (  # after Okabe and Ito, yellow and black exchanged for what shows on either paper
    Shade("#0072b2", "#4ba3e3"),
    Shade("#d55e00", "#ff8a3d"),
    Shade("#009e73", "#2fcf9f"),
    Shade("#b8558f", "#e79fc8"),
    Shade("#d99000", "#f5be41"),
    Shade("#4fa9dd", "#9ad7fa"),
    Shade("#857500", "#f0e442"),
    Shade("#555b66", "#c3c8d0"),
)
CAUSES = (Shade("#3f6fa8", "#5d92cf"), Shade("#c98a1b", "#e0ab4a"), Shade("#9aa3af", "#7d8794"))
"""Fair share, fragmentation, contention."""
JOBS = (
    "#8fb8de",
    "#f2b16e",
    "#8fcf9f",
    "#e79a9a",
    "#c3aee0",
    "#d9c27a",
    "#8fd0d3",
    "#e3a6cf",
    "#bdbdbd",
    "#b3cc73",
    "#86adbd",
    "#cfa37d",
)
"""Pale enough for dark text, on either paper."""
DASHES = ("", "7 3", "2 3", "9 3 2 3")
"""Lines past the fourth policy are dashed too, so that no two rest on hue alone."""


def policy_shade(slot: int) -> Shade:
    """Past the eighth policy the colours come again, each time nearer to the paper."""
    turn, place = divmod(slot, len(POLICIES))
    nearer = 1 - 0.6**turn
    shade = POLICIES[place]
    return Shade(_mixed(shade.light, "#ffffff", nearer), _mixed(shade.dark, "#14171c", nearer))


def _mixed(colour: str, paper: str, part: float) -> str:
    """That part of the way from a colour to the paper's."""
    pairs = [(int(colour[i : i + 2], 16), int(paper[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(own + (other - own) * part):02x}" for own, other in pairs)


def policy_dash(slot: int) -> str:
    return DASHES[(slot // 4) % len(DASHES)]
