"""An index of names: a job is looked up by its exact name."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index("jobs_name", "jobs", ["name", "number", "place"])
