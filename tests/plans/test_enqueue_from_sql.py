"""What a call of ``leasequeue_enqueue`` reads: a function, into which no plan of a statement looks."""

from contextlib import ExitStack

import psycopg
import pytest

from django_leasequeue.engine.django_executor import STEADY

from .filling import FRESH
from .regimes import STATISTICS, Meter, host_connection

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

ENQUEUE = "SELECT leasequeue_enqueue('tests.tasks.samples.add', '{\"args\": [1]}', 'busy', key => %s)"
TAKEN = f"busy-{FRESH + 4}"


@pytest.mark.parametrize("key", [None, "new", TAKEN], ids=["no key", "a new key", "a taken key"])
@pytest.mark.parametrize("role", ["own", "host"])
@pytest.mark.parametrize("statistics", STATISTICS)
def test_pages(full_tables: psycopg.Connection, statistics: str, role: str, key: str | None) -> None:
    with ExitStack() as stack:
        found = full_tables if role == "own" else stack.enter_context(host_connection())
        stack.enter_context(found.transaction(force_rollback=True))
        if role == "host":
            found.execute(STEADY.outside.text)
        for change in STATISTICS[statistics]:
            found.execute(change)
        meter = Meter(found, host=False)
        before = sum(meter.pages().values())
        made = found.execute(ENQUEUE, [key]).fetchone()
        assert sum(meter.pages().values()) - before <= 120
        assert made is not None
        assert (made[0] == TAKEN) is (key == TAKEN)
