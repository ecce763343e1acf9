"""Errors of the embedded PostgreSQL."""


class DevDBError(RuntimeError):
    """The embedded PostgreSQL cannot do what was asked; the message says why and what to do."""
