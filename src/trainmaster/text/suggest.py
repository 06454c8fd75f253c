"""The name that a misspelt one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str | None = None, likeness: float = 0.6
) -> str:
    """The end of a sentence about an unknown name: one with the same letters, else the nearest, else all."""
    from difflib import get_close_matches

    names = list(known)
    turned = [each for each in names if sorted(each) == sorted(name)]
    near = turned or get_close_matches(name, names, n=1, cutoff=likeness)
    if near:
        return f"did you mean {near[0]}?"
    if otherwise is not None:
        return otherwise
    return f"there are {', '.join(names)}." if names else "there are none."
