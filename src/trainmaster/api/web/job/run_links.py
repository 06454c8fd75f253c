"""Where else a run can be looked at: what its output says of Weights & Biases, MLflow and TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

MOST = 4
RUN = re.compile(r"\bview run\b.*?\bat:?\s+(https?://[^\s'\"<>]{1,500})", re.IGNORECASE)
"""`wandb: View run fine-paper-7 at https://wandb.ai/...`; MLflow says the same."""
TENSORBOARD = re.compile(r"\bTensorBoard \S+ at (https?://[^\s'\"<>]{1,200})")


@dataclass(frozen=True, slots=True)
class RunLink:
    """A page about a run; `port` is one of the job itself, which is reached by `trainmaster forward`."""

    url: str
    port: int | None = None


def links_in(lines: Iterable[str]) -> list[RunLink]:
    """Each once, the newest last."""
    found: dict[str, RunLink] = {}
    for line in lines:
        if (run := RUN.search(line)) is not None and (url := _checked(run[1])):
            found[url] = RunLink(url)
        if (board := TENSORBOARD.search(line)) is not None and (url := _checked(board[1])):
            found[url] = RunLink(url, _port(url))
    return list(found.values())[-MOST:]


def _checked(url: str) -> str:
    """Empty for what is no address, or hides where it leads."""
    try:
        parts = urlsplit(url)
        is_plain = bool(parts.hostname) and "@" not in parts.netloc and url.isprintable()
        parts.port  # noqa: B018  raises for one that is no number
    except ValueError:
        return ""
    return url if is_plain and url.isascii() else ""


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
