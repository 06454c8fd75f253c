"""Looks: the style sheets beside this file, and every colour as a class."""

from __future__ import annotations

from importlib.resources import files

from trainmaster.report import palette


def asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def drawing_styles(policies: int) -> str:
    """What a drawing needs: the paper's colours, lines and letters, and a colour per policy."""
    shades = [(f".s{slot}", "--c", palette.policy_shade(slot)) for slot in range(policies)]
    shades += [(f".cause{i}", "fill", shade) for i, shade in enumerate(palette.CAUSES)]
    shades += [(f".chip.cause{i}", "--c", shade) for i, shade in enumerate(palette.CAUSES)]
    light = "".join(f"{css}{{{key}:{shade.light}}}" for css, key, shade in shades)
    dark = "".join(f"{css}{{{key}:{shade.dark}}}" for css, key, shade in shades)
    return f"{asset('drawing.css')}{light}@media(prefers-color-scheme:dark){{{dark}}}"
