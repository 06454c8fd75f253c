"""The column `state` has the states that users know, instead of the phases of the controller."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

OFF_ITS_GPUS = "('held', 'preflight', 'starting')"
ON_ITS_GPUS = "('suspending', 'resizing', 'stopping')"
TIME_LIMIT = '%"failure":{"why":"it has run for its max_runtime of %'


def upgrade() -> None:
    op.execute(
        "UPDATE jobs SET state = CASE WHEN start_ms IS NULL THEN 'pending' ELSE 'suspended' END"
        f" WHERE state IN {OFF_ITS_GPUS}"
    )
    op.execute(f"UPDATE jobs SET state = 'running' WHERE state IN {ON_ITS_GPUS}")
    # A colon would be a parameter of the statement.
    pattern = TIME_LIMIT.replace(":", "\\:")
    op.execute(
        "UPDATE jobs SET state = 'timed_out'"
        f" WHERE state = 'cancelled' AND record_json LIKE '{pattern}'"
    )
