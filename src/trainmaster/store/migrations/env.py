"""What Alembic runs: the missing migrations, on the connection of the store that opens."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
    transactional_ddl=True,  # SQLite can as well: a crash in the middle leaves the old schema
)
with context.begin_transaction():
    context.run_migrations()
