"""Answers one what-if in a process of its own: `python -m trainmaster.whatif`.

The first line of standard input says what is asked. Lines of JSON come out: how far it is, and at last the
answer, or one sentence why there is none. It ends when standard input does: whoever asked has gone.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from typing import Any

from trainmaster.daemon.whatif_rows import WhatIfResult
from trainmaster.store.errors import StoreError
from trainmaster.store.open import open_store
from trainmaster.whatif import history, present_queue
from trainmaster.whatif.live_state import read_state
from trainmaster.whatif.question import Question, QuestionError

SAY_EVERY_S = 0.2
NICE = 15
"""The manager, its jobs and everybody else go first."""


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (asked["memory"], asked["memory"]))
    threading.Thread(target=_end_with_asker, daemon=True).start()
    try:
        said: dict[str, Any] = {
            "result": answer(asked["database"], Question.from_json(asked["question"]))
        }
    except (QuestionError, StoreError) as error:
        said = {"error": str(error)}
    except MemoryError:
        said = {"error": "This needs more memory than a what-if may have: ask for a shorter time."}
    _say(said)


def answer(database: str, question: Question) -> WhatIfResult:
    store = open_store(database)
    try:
        now = read_state(store, round(time.time() * 1000))
        if question.queue_now:
            return present_queue.answered(store, now, question, Progress())
        return history.answered(store, now, question, Progress())
    finally:
        store.close()


class Progress:
    """Says how far it is, now and then."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, part: float, doing: str) -> None:
        if part and time.monotonic() - self._last < SAY_EVERY_S:
            return
        self._last = time.monotonic()
        _say({"progress": round(part, 3), "doing": doing})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, default=vars) + "\n")
    sys.stdout.flush()


def _end_with_asker() -> None:
    while sys.stdin.read(1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
