"""The flags that all examples take; yours has its own."""

from __future__ import annotations

import argparse


def parsed(text: str, steps: int, save_every: int = 50) -> argparse.Namespace:
    """The flags of the command line, with these defaults; the help begins with the first line of the text."""
    flags = argparse.ArgumentParser(description=text.splitlines()[0])
    flags.add_argument("--steps", type=int, default=steps)
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--sleep", type=float, default=0.0, help="seconds to wait after each step")
    flags.add_argument("--save-every", type=int, default=save_every)
    return flags.parse_args()
