"""The made-up history of the lake's demonstration: its busy hour makes jobs wait."""

import pytest

from testproject.bench.events import BUSY_HOUR, Simulation


@pytest.mark.slow
def test_the_busy_hour_makes_waits_and_every_job_ends() -> None:
    waits: dict[int, list[float]] = {}
    ended: set[int] = set()
    for event in Simulation(8_000).events():
        if event.waited is not None:
            waits.setdefault(int(event.at // 3_600), []).append(event.waited)
        if event.kind.name in {"ACKED", "DEAD_LETTERED"}:
            ended.add(event.job)
    assert len(ended) == 8_000
    assert max(waits[BUSY_HOUR]) > 300
    assert max(waits[BUSY_HOUR - 1]) < 5
