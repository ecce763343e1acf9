"""What the views of topics share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ...conf import process
from ...engine import Operation
from ...engine.topics.topics import TopicLook, look
from ...enums import Durability
from ...exceptions import QueueNotFound
from ..auth import require
from ..views import ApiView, T
from .config import NAMES_TOPIC, check_name, to_options
from .figures import TopicFigures, after

#: Seconds that a topic's options are taken as known. They only decide whether a commit is measured, and what an answer
#: warns of.
_FRESH = 5.0
_seen: process.Memory[tuple[str, str, str], tuple[TopicLook, float]] = process.Memory()


class TopicView(ApiView):
    """A view of one topic."""

    def check_topic(self, topic: str) -> None:
        check_name(topic)

    def queue_options(self, config: Mapping[str, Any], topic: str) -> dict[str, Any]:
        """Return the queue options that a valid configuration of the topic stands for.

        Raises:
            ApiError: it names a topic that the key may not use.
            InvalidOption: the topic would be its own dead-letter topic.
        """
        for name in NAMES_TOPIC:
            require(self.access, frozenset(), config.get(name))
        return to_options(config, topic)

    async def look(self, topic: str, *, leases: bool = False) -> TopicLook:
        """Return what a call has to know of the topic.

        Raises:
            QueueNotFound, NotAQueue: it is not there, or not of the kind that has leases.
        """
        found = await self.run(look(topic, project=self.project, leases=leases))
        _seen[self.runner.using, self.project, topic] = (found, time.monotonic())
        return found

    def forget(self, topic: str) -> None:
        """Forget what was known of the topic: this process has changed it."""
        _seen.pop((self.runner.using, self.project, topic), None)

    async def recent_look(self, topic: str) -> TopicLook | None:
        """Return what a look at the topic has found in the last seconds, or finds now; ``None`` if it is not there."""
        found = _seen.get((self.runner.using, self.project, topic))
        if found is not None and time.monotonic() - found[1] <= _FRESH:
            return found[0]
        try:
            return await self.look(topic)
        except QueueNotFound:
            return None

    async def warn(self, topic: str, of: Callable[[TopicLook], str | None]) -> None:
        """Add to the answer what ``of`` says of the topic, if anything.

        What is known of the topic decides whether there is something to say; before it is said, the topic is looked at.
        """
        known = await self.recent_look(topic)
        if known is None or of(known) is None:
            return
        with suppress(QueueNotFound):  # deleted meanwhile
            warning = of(await self.look(topic))
            if warning is not None:
                self.warnings.append(warning)

    async def run_durably(self, topic: str, operation: Operation[T]) -> tuple[T, float]:
        """Run an operation whose commit follows the topic's durability.

        Returns:
            Its value, and the milliseconds that the flush took: 0 where the commit does not wait for the disk.
        """
        known = await self.recent_look(topic)
        if known is None or known.durability != Durability.FSYNC:
            return await self.run(operation), 0.0
        value, took = await self.runner.run_flushed(operation)
        return value, max(round(took, 3), 0.001)

    async def figures(self, topic: str, **changes: Any) -> TopicFigures:
        """Return the topic's counters after this call, which changed them by the given numbers; see ``after``."""
        return await after(self.runner, self.project, topic, **changes)
