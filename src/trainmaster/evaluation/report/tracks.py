"""Tracks in words: what is allowed and charged in the experiments of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Track:
    """How a track is called in a table, and in a heading."""

    name: str
    short: str
    title: str


TRACKS = (
    Track("order", "order", "Order only: rigid jobs, ideal conditions"),
    Track("placement", "placement", "With locality and the cost of switching"),
    Track("packing", "packing", "With packing"),
    Track("elastic", "elastic", "With elastic jobs"),
    Track("sweep", "sweeps", "Sweeps"),
    Track("seed", "papers", "Experiments from the papers"),
    Track("ablation", "ablations", "Ablations"),
)
BY_NAME = {track.name: track for track in TRACKS}


def track_words(name: str) -> str:
    return BY_NAME[name].short if name in BY_NAME else name


def track_title(name: str) -> str:
    return BY_NAME[name].title if name in BY_NAME else name.capitalize()
