"""Alembic's entry point: runs the migrations on the connection that `callboard.storage.sql.versions` passes."""

from alembic import context

from callboard.storage.sql.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
