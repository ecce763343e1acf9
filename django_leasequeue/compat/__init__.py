"""The names of other queues on this one.

Nothing imports it. Start at `jqueue` and `jobqueue`: each imports the other modules of its name.
"""

from __future__ import annotations

from ..exceptions import InvalidOption


class MissingStorage:
    """A storage of the original, which has no counterpart.

    Raises:
        InvalidOption: always; it says what to write.
    """

    #: How the original's queue is written here.
    example = ""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise InvalidOption(
            f"there is no {type(self).__name__}: jobs are kept in PostgreSQL. Give the name of a queue in place of a"
            f" storage: {self.example}."
        )
