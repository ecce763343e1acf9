"""The names of other queues on this one.

Nothing imports it. Start at `jqueue` and `jobqueue`: each imports the other modules of its name.
"""

from __future__ import annotations

from ..exceptions import InvalidOption


def missing_storage(name: str, example: str) -> type:
    """Return a storage of the original, which has no counterpart: it is refused, with what to write (``example``)."""

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise InvalidOption(
            f"there is no {name}: jobs are kept in PostgreSQL. Give the name of a queue in place of a storage:"
            f" {example}."
        )

    return type(name, (), {"__init__": refuse, "__doc__": "Refused: it says what to write."})
