"""The lines of `explain`, apart from the manager."""

from __future__ import annotations

from trainmaster.cli.explain import lines_of


def test_one_gpu_is_always_together() -> None:
    """A limit of its user keeps it from both: it is not a matter of where they are."""
    said = {"sentence": "ada has 2 GPUs, as many as one user may.", "code": "UserLimit"}
    for need, words in ((1.0, "GPUs: needed 1, free 2."), (0.5, "GPUs: needed 0.5, free 2.")):
        numbers = {"need": need, "free": 2.0, "largest_block": 0.0}
        assert lines_of({**said, "numbers": numbers})[1] == words
    numbers = {"need": 2.0, "free": 2.0, "largest_block": 1.0}
    assert lines_of({**said, "numbers": numbers})[1] == "GPUs: needed 2, free 2, free together 1."
