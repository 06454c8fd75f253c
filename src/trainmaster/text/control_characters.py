"""Characters that a terminal obeys or that change what a reader sees: found in names, shown as codes in text.

Escape sequences of C0 and C1 set titles, colours and the clipboard; bidirectional overrides reorder a
line; signs without a width make two names look like one.
"""

from __future__ import annotations

import re

UNSAFE = (
    r"\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    r"\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # format
    r"\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # tags, variation selectors
    r"\u2028\u2029\ud800-\udfff"  # line and paragraph separators, lone surrogates
)
"""They as a part of a character class; categories Cc, Cf, Cs, Zl and Zp."""
BASIC_UNSAFE = r"\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""The most usual of them, as JSON Schema and HTTP parameters can say it."""

_UNSAFE = re.compile(f"[{UNSAFE}]")
_UNSAFE_IN_TEXT = re.compile(f"(?![\n\t])[{UNSAFE}]")


def visible(text: str) -> str:
    r"""Text of any length that a terminal shows and does not obey: `\x1b` for an escape; lines stay lines."""
    return text if text.isprintable() else _UNSAFE_IN_TEXT.sub(_code, text)


def visible_line(text: str) -> str:
    r"""The same in one line: a line break is `\x0a`."""
    return text if text.isprintable() else _UNSAFE.sub(_code, text)


def visible_json(text: str) -> str:
    r"""JSON with these characters as its own escapes, `\u009b`: what it says stays the same."""
    return text if text.isprintable() else _UNSAFE_IN_TEXT.sub(_json_code, text)


def _code(found: re.Match[str]) -> str:
    code = ord(found.group())
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _json_code(found: re.Match[str]) -> str:
    sign = found.group()
    if ord(sign) < 0x10000:
        return f"\\u{ord(sign):04x}"
    pair = sign.encode("utf-16-be")
    return "".join(f"\\u{pair[at]:02x}{pair[at + 1]:02x}" for at in (0, 2))
