"""What ``/v1/queues`` reads and changes beside hundreds of thousands of messages: pages, messages by id, claims."""

from collections.abc import Iterator

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection as django_connection
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue import engine
from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.topics import messages

from .explain import Explaining, Plan
from .filling import BATCHED, FRESH, IDS, NOW, OTHER, fill, fill_queues

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[psycopg.Connection]:
    with django_db_blocker.unblock(), connect("default") as connection:
        fill_queues(connection)
        fill(connection)
        connection.execute("VACUUM (ANALYZE)")
        try:
            yield connection
        finally:
            call_command("flush", verbosity=0, interactive=False)
            django_connection.close()


@pytest.fixture
def explaining(filled: psycopg.Connection, django_db_blocker: DjangoDbBlocker) -> Iterator[Explaining]:
    """An executor that explains; its transaction is rolled back."""
    with (
        django_db_blocker.unblock(),
        engine_clock.hold(engine_clock.Clock(NOW)),
        filled.transaction(force_rollback=True),
    ):
        yield Explaining(filled)


def check(plan: Plan, *indexes: str, rows: int) -> None:
    """No large table as a whole, these indexes, at most so many rows of large tables."""
    assert not plan.whole_tables, plan.text()
    assert plan.indexes >= {f"leasequeue_{index}" for index in indexes}, plan.text()
    assert plan.table_rows() <= rows, plan.text()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_page(explaining: Explaining, share: float) -> None:
    after = OTHER + int(20_000 * share)
    page = explaining.run(messages.list_messages(IDS["other"], after=after, size=20))
    assert [message.seq for message in page] == list(range(after + 1, after + 21))
    check(explaining.plan("message_list"), "ready_pkey", "job_pkey", rows=60)


def test_a_page_with_what_is_held(explaining: Explaining) -> None:
    explaining.run(engine.claim("other", "n", 100))
    page = explaining.run(messages.list_messages(IDS["other"], size=20, leased=True))
    assert [message.seq for message in page if message.claim] == list(range(OTHER, OTHER + 20))
    check(explaining.plan("message_list"), "ready_pkey", "job_pkey", "claim_deadline", rows=250)


def test_messages_by_id(explaining: Explaining) -> None:
    wanted = range(OTHER, OTHER + 20)
    assert len(explaining.run(messages.get_messages(IDS["other"], wanted))) == 20
    check(explaining.plan("message_get"), "job_pkey", "ready_pkey", rows=45)
    assert sorted(explaining.run(messages.delete_messages(IDS["other"], wanted))) == list(wanted)
    check(explaining.plan("remove"), "job_pkey", "ready_pkey", rows=130)


def test_the_oldest_and_the_newest(explaining: Explaining) -> None:
    explaining.run(engine.claim("other", "n", 20))
    ends = explaining.run(messages.get_ends(IDS["other"]))
    assert ends is not None
    assert [seq for seq, *_ in ends] == [OTHER, OTHER + 19_999]
    check(explaining.plan("message_ends"), "ready_pkey", "claim_deadline", "job_pkey", rows=10)
    assert explaining.run(messages.get_ends(IDS["busy"])) is not None
    check(explaining.plan("message_ends", 1), "ready_pkey", "claim_deadline", "job_pkey", rows=1_010)


def test_a_claim(explaining: Explaining) -> None:
    queue = IDS["busy"]
    live = explaining.run(messages.get_claim(queue, BATCHED))
    assert len(live.messages) == 200
    check(explaining.plan("claim_get"), "claim_pkey", "job_pkey", rows=210)
    assert explaining.run(messages.renew_claim(queue, BATCHED, 60_000)) == 200
    check(explaining.plan("claim_renew"), "claim_pkey", rows=3)
    assert explaining.run(messages.release_claim(queue, BATCHED)) == 200
    check(explaining.plan("claim_seqs"), "claim_pkey", rows=3)
    assert explaining.run(messages.get_claim(queue, BATCHED)) is None
    assert len(explaining.run(messages.get_messages(queue, [BATCHED, FRESH]))) == 2
