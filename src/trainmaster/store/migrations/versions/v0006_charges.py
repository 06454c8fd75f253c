"""GPU time by job, queue, user and GPU type; of jobs that ended before, as far as their rows say."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    charges = op.create_table(
        "charges",
        sa.Column("job", sa.Text, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("gpu_type", sa.Text, nullable=False),
        sa.Column("from_ms", sa.BigInteger, nullable=False),
        sa.Column("to_ms", sa.BigInteger, nullable=False),
        sa.Column("gpu_ms", sa.BigInteger, nullable=False),
        sa.Column("lost_gpu_ms", sa.BigInteger, nullable=False),
        sa.Column("price", sa.BigInteger),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("nr", LONG, primary_key=True),
    )
    op.create_index("charges_time", "charges", ["to_ms"])
    op.create_index("charges_job", "charges", ["job"])
    jobs = sa.table(
        "jobs",
        *(sa.column(name) for name in ("id", "user", "queue", "start_ms", "finish_ms", "gpus")),
        sa.column("record_json"),
    )
    ended = sa.select(jobs).where(jobs.c.finish_ms.is_not(None), jobs.c.start_ms.is_not(None))
    rows = [
        {
            "job": job.id,
            "user": job.user,
            "queue": job.queue,
            "gpu_type": "",
            "from_ms": job.start_ms,
            "to_ms": max(job.start_ms, job.finish_ms),
            "gpu_ms": record["gpu_ms"],
            "lost_gpu_ms": min(record["gpu_ms"], record.get("lost_ms", 0) * job.gpus),
            "price": None,
            "currency": "",
        }
        for job in op.get_bind().execute(ended).all()
        if (record := json.loads(job.record_json)).get("gpu_ms")
    ]
    if rows:
        op.bulk_insert(charges, rows)
