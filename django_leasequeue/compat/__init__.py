"""The APIs of other queues on this one.

Nothing imports it. Start at `jqueue` and `jobqueue`: each imports the other modules of its name.
"""

from __future__ import annotations

from ..exceptions import InvalidOption


def missing_storage(name: str, example: str) -> type:
    """Return a class for a storage of the original API; it raises an error with the right call (``example``)."""

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise InvalidOption(
            f"storage must be the name of a queue, as in {example}; it is a {name}. Jobs are kept in PostgreSQL."
        )

    return type(name, (), {"__init__": refuse, "__doc__": "Raises an error: give the name of a queue."})
