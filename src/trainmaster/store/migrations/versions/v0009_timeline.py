"""Where GPU time was held and what ended it, for the timeline; failed runs by their time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

FAILED = sa.text("what IN ('failed', 'lost')")


def upgrade() -> None:
    op.add_column("charges", sa.Column("attempt", sa.BigInteger))
    op.add_column("charges", sa.Column("devices", sa.Text))
    op.add_column("charges", sa.Column("ended", sa.Text))
    op.create_index(
        "stories_failed", "stories", ["at_ms"], sqlite_where=FAILED, postgresql_where=FAILED
    )
