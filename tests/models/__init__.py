"""The tables: what the database itself refuses."""
