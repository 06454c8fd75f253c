"""Colours that colour-blind people tell apart, on light and on dark paper, and their names in CSS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Shade:
    """One colour, as it looks best on each paper."""

    light: str
    dark: str


PAPER = {
    "ink": Shade("#1b1f27", "#eceff4"),
    "soft": Shade("#5b6472", "#a3acba"),
    "hair": Shade("#e3e6eb", "#2b313c"),
    "axis": Shade("#9aa3af", "#6b7482"),
    "card": Shade("#ffffff", "#191d25"),
    "idle": Shade("#f0f2f5", "#20252e"),
}
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
CAUSES = (Shade("#3f6fa8", "#5d92cf"), Shade("#c98a1b", "#e0ab4a"), Shade("#9aa3b0", "#7d8794"))
"""Fair share, fragmentation, contention."""
MARKS = {
    "ours": POLICIES[0],
    "published": Shade("#5b6473", "#b4bcc8"),
    "bound": Shade("#9aa3b1", "#7d8795"),
    "ablation": POLICIES[3],
    "met": Shade("#00845f", "#2fcf9e"),
    "missed": Shade("#c64a00", "#ff8a3c"),
}
JOBS = (
    *("#8fb8de", "#f2b16e", "#8fcf9f", "#e79a9a", "#c3aee0", "#d9c27a"),
    *("#8fd0d3", "#e3a6cf", "#bdbdbd", "#b3cc73", "#86adbd", "#cfa37d"),
)
"""Pale enough for dark text, on either paper."""
DASHES = ("", "7 3", "2 3", "9 3 2 3")
"""Neighbouring lines differ in these too, so that none rests on hue alone."""
MOST_SLOTS = 40


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
    return DASHES[(slot + slot // len(POLICIES)) % len(DASHES)]


@cache
def _named() -> dict[str, Shade]:
    slots = {f"s{slot}": policy_shade(slot) for slot in range(MOST_SLOTS)}
    causes = {f"cause{place}": shade for place, shade in enumerate(CAUSES)}
    return {**PAPER, **slots, **causes, **MARKS}


@cache
def _names() -> dict[str, str]:
    return {shade.light: name for name, shade in reversed(_named().items())}


def css() -> str:
    """Every named colour as a variable, light or dark as the reader's system is."""
    light = "".join(f"--{name}:{shade.light};" for name, shade in _named().items())
    dark = "".join(f"--{name}:{shade.dark};" for name, shade in _named().items())
    slots = "".join(f".s{slot}{{--c:var(--s{slot})}}" for slot in range(MOST_SLOTS))
    text = "svg text{fill:var(--ink)}"
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{slots}{text}"


def by_name(colour: re.Match[str]) -> str:
    """A drawing's colour as a reference to the page's, with itself where there is no page."""
    name = _names().get(colour[0])
    return colour[0] if name is None else f"var(--{name},{colour[0]})"
