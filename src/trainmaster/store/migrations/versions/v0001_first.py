"""The first schema: steps, snapshots, jobs, their stories and progress, and idempotency keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _log()
    _jobs()
    _of_jobs()
    op.create_table(
        "keys",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("request_hash", sa.Text, nullable=False),
        sa.Column("answer_json", sa.Text, nullable=False),
    )
    op.create_index("keys_at", "keys", ["at_ms"])


def _log() -> None:
    ledger = op.create_table(
        "ledger",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(ledger, [{"id": 1, "epoch": 0, "holder": "", "last_seq": 0}])
    op.create_table(
        "steps",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("now_ms", sa.BigInteger, nullable=False),
        sa.Column("events_json", sa.Text, nullable=False),
        sa.Column("orders_json", sa.Text, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("body_json", sa.Text, nullable=False),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submit_ms", sa.BigInteger, nullable=False),
        sa.Column("start_ms", sa.BigInteger),
        sa.Column("finish_ms", sa.BigInteger),
        sa.Column("gpus", sa.BigInteger, nullable=False),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("array", sa.Text),
        sa.Column("array_index", sa.BigInteger),
        sa.Column("spec_json", sa.Text, nullable=False),
        sa.Column("record_json", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.Column("folded_name", sa.Text, nullable=False),
    )
    op.create_index("jobs_number", "jobs", ["number"])
    page = ["submit_ms", "number", "place", "id", "user", "queue", "array"]
    op.create_index("jobs_page", "jobs", page)
    op.create_index("jobs_state", "jobs", ["state", *page])


def _of_jobs() -> None:
    op.create_table(
        "stories",
        sa.Column("nr", LONG, primary_key=True),
        sa.Column("job", sa.Text, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("detail_json", sa.Text, nullable=False),
    )
    op.create_index("stories_job", "stories", ["job", "nr"])
    op.create_table(
        "progress",
        sa.Column("nr", LONG, primary_key=True),
        sa.Column("job", sa.Text, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("loss", sa.Double),
        sa.Column("samples_per_s", sa.Double),
    )
    op.create_index("progress_job", "progress", ["job", "nr"])
