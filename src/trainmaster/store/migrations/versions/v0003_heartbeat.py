"""The leader's heartbeat: a count that grows while it leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("ledger", sa.Column("beat", sa.BigInteger, nullable=False, server_default="0"))
