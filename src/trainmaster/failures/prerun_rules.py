"""What a failure on one device says about a job of several: the program's own bug, or nothing for sure.

A good job must not fail because of its pre-run alone. So only failures that have nothing to do with the
number of devices, nor with the empty folder that a pre-run has for its checkpoints, count against it.
"""

from __future__ import annotations

import re

from trainmaster.model.failure import Blame, Failure

SAME_ON_ALL_DEVICES = frozenset(
    {
        *("syntax-error", "import-error", "library-not-loaded", "command-not-found"),
        *("missing-file", "permission-error", "bad-arguments", "incorrect-input"),
        *("semantic-error", "assertion-error", "shape-mismatch", "index-out-of-range"),
        *("output-node-error", "authentication-error", "built-without-cuda"),
        *("cuda-version-mismatch",),
        *("device-side-assert", "cuda-in-forked-process"),
    }
)
"""Reasons that a program has on one device as on many. Memory, networks and losses are not among them."""
SPEAKS_OF_MANY = re.compile(
    r"world.?size|\b(local_?)?ranks?\b|gpus?\b|devices?\b|n_?proc|num_(processes|nodes)|nnodes"
    r"|mesh|parallel|shard|pipeline.stage|distributed|process.?group|nccl|gloo|all.?reduce"
    r"|divisible|divide[sd]?\b|global.?batch|multiple of",
    re.IGNORECASE,
)
"""Words of a message that may mean that there are too few devices."""


def counts_against_program(failure: Failure, prerun_folder: str = "") -> bool:
    """Whether it would have failed in the same way on all its devices; False: that is not known."""
    if failure.blame is not Blame.USER or failure.reason not in SAME_ON_ALL_DEVICES:
        return False
    said = [*failure.lines, failure.path]
    if any(SPEAKS_OF_MANY.search(line) for line in said):
        return False
    return not prerun_folder or not any(prerun_folder in line for line in said)
