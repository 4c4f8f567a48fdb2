"""The store's tables, statements and databases: SQLite and PostgreSQL."""
