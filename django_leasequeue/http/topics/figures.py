"""Counters beside the answers: ``ready`` and ``in_flight`` after a call, without counting a long queue for each one.

A count costs as much as there is to count. A cheap one is made for every answer. An expensive one is kept for a moment
(twenty times what it took, so that counting takes at most a twentieth of the time, and ``COUNT_SECONDS`` at most), and
what this process does meanwhile is added to it. ``GET`` of a topic always counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ... import conf
from ...conf import process
from ...engine.queues import stats
from ..running import RequestRunner

#: Seconds that a count may take to be made every time.
CHEAP = 0.002
#: How much longer than it took a count is kept.
FACTOR = 20.0


@dataclass(slots=True)
class TopicFigures:
    """Counters of a topic after a call."""

    ready: int = 0
    in_flight: int = 0
    count: int = 0


@dataclass(slots=True)
class _Kept:
    figures: TopicFigures
    counted_at: float
    until: float
    counting: bool = False


_kept: process.Memory[tuple[str, str, str], _Kept] = process.Memory()


async def after(
    runner: RequestRunner,
    project: str,
    topic: str,
    *,
    ready: int = 0,
    in_flight: int = 0,
    count: int = 0,
    drained: bool = False,
) -> TopicFigures:
    """Return a topic's counters after a call of this process that changed them by the given numbers.

    Args:
        runner: where to count.
        project: the tenant.
        topic: its name.
        ready: how many jobs the call made ready (negative: took).
        in_flight: how many it leased (negative: ended).
        count: how many records it added (negative: removed).
        drained: whether it took all that it could: what is kept as ready beyond that is elsewhere (dead, for example).
    """
    place = (runner.using, project, topic)
    kept = _kept.get(place)
    if kept is not None:
        figures = kept.figures
        figures.ready = max(0, figures.ready + ready)
        figures.in_flight = max(0, figures.in_flight + in_flight)
        figures.count = max(0, figures.count + count)
        if kept.counting or (time.monotonic() < kept.until and not (drained and figures.ready)):
            return figures
        kept.counting = True
    try:
        return await _count(runner, project, topic, place)
    finally:
        if kept is not None:
            kept.counting = False


async def _count(runner: RequestRunner, project: str, topic: str, place: tuple[str, str, str]) -> TopicFigures:
    began = time.monotonic()
    counts = await runner.run(stats.counts(topic, project=project))
    now = time.monotonic()
    figures = TopicFigures(
        counts.ready,
        counts.in_flight,
        counts.ready + counts.in_flight + counts.delayed + counts.dead + counts.records,
    )
    took = now - began
    if took <= CHEAP:
        _kept.pop(place, None)
    else:
        _kept[place] = _Kept(figures, now, now + min(took * FACTOR, conf.settings.API.COUNT_SECONDS))
    return figures
