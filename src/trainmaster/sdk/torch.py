"""`trainmaster_sdk.torch` by the name it has in the full package."""

from trainmaster_sdk.torch import (
    ShardedCheckpoints,
    StepBatches,
    any_rank,
    batch_of,
    gang,
    global_mean,
    outlive_stop,
    seed_step,
)

__all__ = [
    "gang",
    "any_rank",
    "batch_of",
    "StepBatches",
    "outlive_stop",
    "seed_step",
    "global_mean",
    "ShardedCheckpoints",
]
