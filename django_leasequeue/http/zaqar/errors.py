"""Errors of this door: a status and ``{"title", "description"}``."""

from __future__ import annotations


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, title: str, description: str) -> None:
        self.status = status
        self.title = title
        self.description = description
        super().__init__(description)


def bad(description: str, title: str = "Invalid API request") -> Refused:
    """A request that is wrong: 400."""
    return Refused(400, title, description)


def missing(what: str) -> Refused:
    """Something that is not there: 404."""
    return Refused(404, "Not found", what)


def forbidden(description: str, title: str = "Unable to delete") -> Refused:
    """Something that the caller may not do: 403."""
    return Refused(403, title, description)
