"""To what the work of a stretch of GPU time was lost; not known of earlier stretches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("charges", sa.Column("lost_to", sa.Text, nullable=False, server_default=""))
