"""What the views of topics share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ... import engine, process
from ...engine import Operation
from ...engine.topics.topics import Look, look
from ...enums import Durability
from ...exceptions import QueueNotFound
from ..auth import require
from ..views import ApiView, T
from .config import NAMES_TOPIC, check_name, to_options
from .figures import Figures, after

#: Seconds that a topic's durability is taken as known. It only decides whether the commit is measured.
_FRESH = 5.0
_flushing: process.Memory[tuple[str, str, str], tuple[bool, float]] = process.Memory()


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

    async def look(self, topic: str, *, leases: bool = False) -> Look:
        """Return what a call has to know of the topic.

        Raises:
            QueueNotFound, NotAQueue: it is not there, or not of the kind that has leases.
        """
        found = await self.run(look(topic, project=self.project, leases=leases))
        self.note_durability(topic, found.durability)
        return found

    def note_durability(self, topic: str, durability: str) -> None:
        """Remember for a moment whether commits of the topic wait for the disk."""
        _flushing[self.runner.using, self.project, topic] = (durability == Durability.FSYNC, time.monotonic())

    async def _flushes(self, topic: str) -> bool:
        flushes, noted = _flushing.get((self.runner.using, self.project, topic), (False, 0.0))
        if time.monotonic() - noted <= _FRESH:
            return flushes
        try:
            found = await self.look(topic)
        except QueueNotFound:
            return False
        return found.durability == Durability.FSYNC

    async def run_durably(self, topic: str, operation: Operation[T]) -> tuple[T, float]:
        """Run an operation whose commit follows the topic's durability.

        Returns:
            Its value, and the milliseconds that the flush took: 0 where the commit does not wait for the disk.
        """
        if not await self._flushes(topic):
            return await self.run(operation), 0.0
        value, took = await self.runner.run_flushed(operation)
        return value, max(round(took, 3), 0.001)

    async def config_of(self, topic: str) -> Mapping[str, Any]:
        """Return the queue options of a topic; nothing if it was deleted meanwhile."""
        found = await self.run(engine.get(topic, project=self.project))
        return {} if found is None else found.config

    async def figures(self, topic: str, *, ready: int = 0, in_flight: int = 0, count: int = 0) -> Figures:
        """Return the topic's counters after this call, which changed them by the given numbers."""
        return await after(self.runner, self.project, topic, ready=ready, in_flight=in_flight, count=count)
