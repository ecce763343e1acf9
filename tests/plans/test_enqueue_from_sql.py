"""What a call of ``leasequeue_enqueue`` reads: a function, into which no plan of a statement looks."""

import psycopg
import pytest

from .filling import FRESH
from .regimes import STATISTICS, Meter

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

ENQUEUE = "SELECT leasequeue_enqueue('tests.tasks.samples.add', '{\"args\": [1]}', 'busy', key => %s)"
TAKEN = f"busy-{FRESH + 4}"


@pytest.mark.parametrize("key", [None, "new", TAKEN], ids=["no key", "a new key", "a taken key"])
@pytest.mark.parametrize("statistics", STATISTICS)
def test_pages(connection: psycopg.Connection, statistics: str, key: str | None) -> None:
    for change in STATISTICS[statistics]:
        connection.execute(change)
    meter = Meter(connection, host=False)
    before = sum(meter.pages().values())
    made = connection.execute(ENQUEUE, [key]).fetchone()
    assert sum(meter.pages().values()) - before <= 120
    assert made is not None
    assert (made[0] == TAKEN) is (key == TAKEN)
