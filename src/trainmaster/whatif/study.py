"""Answers one what-if in a process of its own (`simulation_processes`): `python -m trainmaster.whatif.study`.

It reads the manager's store by itself, so that the manager does nothing for it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainmaster.daemon.whatif_rows import WhatIfResult
from trainmaster.durable_files import write_whole
from trainmaster.store.errors import StoreError
from trainmaster.store.open import open_store
from trainmaster.whatif import history, present_queue
from trainmaster.whatif.child_process import Teller, bounded, refuse
from trainmaster.whatif.live_state import read_state
from trainmaster.whatif.question import Question, QuestionError
from trainmaster.whatif.simulation_processes import RESULT, request_in

PROGRAM = "trainmaster.whatif.study"


def main() -> None:
    bounded()
    folder = Path(sys.argv[1])
    asked = request_in(folder)
    try:
        question = Question.from_fields(asked["question"])
        result = answered(asked["database"], question, asked["now_ms"])
    except (QuestionError, StoreError) as error:
        refuse(str(error))
    write_whole(folder / RESULT, json.dumps(result, default=vars))


def answered(database: str, question: Question, now_ms: int) -> WhatIfResult:
    """As things are at that time, when it was asked."""
    store, teller = open_store(database), Teller()
    try:
        now = read_state(store, now_ms)
        if question.queue_now:
            return present_queue.answered(store, now, question, teller.tell)
        return history.answered(store, now, question, teller.tell)
    finally:
        store.close()


if __name__ == "__main__":
    main()
