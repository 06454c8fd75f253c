"""Why a run failed, in a few words."""

from __future__ import annotations

import re

from trainmaster.model.failure import SIGNALS, UNKNOWN_REASON, Failure
from trainmaster.text.formatting import shortened

MOST_WORDS = 100
"""Characters of the last line of a failure that no reason is known for."""
UNEXPLAINED = "nothing in its log says why"
SHELL_CODES = {
    126: "shells use exit code 126 for a command that cannot be executed",
    127: "shells use exit code 127 for a command that is not found",
}
TELLS = re.compile(
    r"(?i:error|exception|fail|fatal|abort|crash|panic|kill|assert|terminat|interrupt|corrupt|diverg"
    r"|\b(?:cannot|unable|could|must|should|not|no|never|without|too|invalid|illegal|bad|wrong|missing"
    r"|denied|refused|unknown|unexpected|lost|expired|exceed\w*|time[sd]? ?out|stop\w*|exit\w*|quit\w*"
    r"|giv(?:es?|ing) up|nan|infs?|mismatch|incompatible|needs?|require[sd]?|expected|insufficient|down"
    r"|unavailable|offline|broken|empty)\b|n't\b)"
    r"|^(?:\w+\.)+[A-Z]\w+(?::|$)"
)
"""What a line has that may tell why a program ended: a word for it, or the name of an exception."""
FRAME = re.compile(r'^\s*File ".+", line \d+')


def failure_words(failure: Failure, title: str) -> str:
    """The title of its reason; where none is known, what it wrote last."""
    if failure.reason != UNKNOWN_REASON:
        return title
    last = "".join(failure.lines[-1:])
    if TELLS.search(last) or any(FRAME.match(line) for line in failure.lines):
        return shortened(last, MOST_WORDS)
    said = [UNEXPLAINED]
    if last:
        said.append(f'its last line was "{shortened(last, MOST_WORDS)}"')
    meaning = "" if failure.signal else code_words(failure.exit_code or 0)
    return "; ".join((*said, meaning) if meaning else said)


def code_words(code: int) -> str:
    """What an exit code mostly stands for, where it is one of a shell's."""
    name = SIGNALS.get(code - 128)
    return f"exit code {code} often stands for {name}" if name else SHELL_CODES.get(code, "")
