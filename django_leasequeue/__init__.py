"""A lease-based, at-least-once job queue for Django, kept in the project's own PostgreSQL."""

__version__ = "0.1.0"
