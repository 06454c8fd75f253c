"""The name that was probably meant."""

from __future__ import annotations

from collections.abc import Sequence


def offer(word: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown word: the nearest one, or all there are."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
