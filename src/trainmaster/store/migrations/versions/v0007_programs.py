"""Which program a job runs, so that the newest runs of each are found; not known of earlier jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("program", sa.Text))
    order = ("submit_ms", "number", "place", "id")
    op.create_index("jobs_program", "jobs", ["state", "program", *order])
