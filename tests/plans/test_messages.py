"""What ``/v1/queues`` reads and changes beside a hundred thousand messages: pages, messages by id, claims."""

from __future__ import annotations

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import messages

from .conftest import Tables
from .explain import Explaining
from .test_hot_statements import check, held

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_page(explaining: Explaining, tables: Tables, share: float) -> None:
    after = tables.start["other-0-1 hour"] + int(20_000 * share)
    page = explaining.run(messages.list_messages(tables.ids["other"], after=after, size=20))
    assert len(page) == 20
    check(explaining.plan("message_list"), "job_ready", rows=60)


def test_a_page_with_what_is_held(explaining: Explaining, tables: Tables) -> None:
    explaining.run(engine.claim("other", "n", 100))
    page = explaining.run(messages.list_messages(tables.ids["other"], size=20, leased=True))
    assert len(page) == 20
    check(explaining.plan("message_list"), "job_ready", "job_pkey", "claim_deadline", rows=250)


def test_messages_by_id(explaining: Explaining, tables: Tables) -> None:
    start = tables.start["other-0-1 hour"]
    assert len(explaining.run(messages.get_messages(tables.ids["other"], range(start, start + 20)))) == 20
    check(explaining.plan("message_get"), "job_pkey", rows=25)
    assert len(explaining.run(messages.delete_messages(tables.ids["other"], range(start, start + 20)))) == 20
    check(explaining.plan("message_delete"), "job_pkey", rows=70)


def test_the_oldest_and_the_newest(explaining: Explaining, tables: Tables) -> None:
    explaining.run(engine.claim("other", "n", 20))
    assert explaining.run(messages.get_ends(tables.ids["other"])) is not None
    plan = explaining.plan("message_ends")
    assert "leasequeue_job_ready" in plan.indexes
    assert "leasequeue_job" not in plan.whole_tables
    # A hundred claims are so few that a host's planner reads them all.
    assert plan.table_rows() <= 150, plan.text()


def test_a_claim(explaining: Explaining, tables: Tables) -> None:
    _, claims = held(tables, 1)
    queue = tables.ids["busy"]
    live = explaining.run(messages.get_claim(queue, claims[0]))
    assert live is not None
    assert len(live.messages) == 200
    check(explaining.plan("claim_get"), "claim_pkey", "job_pkey", rows=210)
    assert explaining.run(messages.renew_claim(queue, claims[0], 60_000)) == 200
    check(explaining.plan("claim_renew"), "claim_pkey", "job_pkey", rows=620)
    assert explaining.run(messages.release_claim(queue, claims[0])) == 200
    check(explaining.plan("claim_drop"), "claim_pkey", rows=3)
    assert explaining.run(messages.get_claim(queue, claims[0])) is None
