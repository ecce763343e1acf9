"""A role with the rights that the documentation names: all but the owner's duties are done, and those are said once."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from django.db import connections

from django_leasequeue import Queue
from django_leasequeue.checks import database as database_checks
from django_leasequeue.models import Job
from django_leasequeue.reaper.status import read_status
from tests.engine.helpers import run
from tests.reaper.conftest import leading
from tests.support.documents import blocks
from tests.tasks import samples
from tests.tasks.helpers import run_one

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def app(test_dsn: str) -> Iterator[str]:
    """Sessions of the alias have the role that the page grants rights to."""
    (granted,) = [block.text for block in blocks("reference/grants.md") if block.language == "sql"]
    name = "leasequeue_test_app"
    options = connections["default"].settings_dict["OPTIONS"]
    with psycopg.connect(test_dsn, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name}")
        try:
            owner.execute(granted.replace(" TO app", f" TO {name}"))
            with patch.dict(options, assume_role=name):
                connections["default"].close()
                yield name
        finally:
            connections["default"].close()
            owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def two_rounds(only: str = "") -> None:
    """Let a reaper do all its duties twice, or one of them."""
    with leading() as reaper:
        for _ in range(2):
            for duty in reaper._duties:
                duty.next_at = float("-inf") if only in (duty.name, "") else float("inf")
            reaper.tick()


def test_the_rights_that_the_page_names_are_enough_and_the_owners_duties_are_said_once(
    app: str, settings: Any, caplog: Any
) -> None:
    assert run("SELECT current_user") == [(app,)]
    mail = Queue("mail", dead_letter="self", max_deliveries=1)
    mail.enqueue({"to": 1}, key="one")
    mail.enqueue_many([{"to": number} for number in range(150)])
    mail.ack(mail.claim(1)[0])
    samples.add.using(key="once").enqueue(1)
    assert run_one() == "completed"
    settings.LEASEQUEUE = {"EVENT_PARTITIONS_AHEAD": 20}  # more than any test before has made
    two_rounds()
    said = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [record for record in caplog.records if record.exc_info] == []
    assert len(said) == len(set(said)), "once each"
    duties = {message.split("may not do its duty ")[1].split(" ")[0] for message in said if "may not do" in message}
    assert duties <= {"partitions", "vacuum"}
    assert "partitions" in duties
    (shown,) = [block.text.splitlines() for block in blocks("reference/grants.md") if block.language == "text"]
    assert shown[0] in said


def test_after_a_restore_the_reaper_says_who_begins_the_epoch(app: str, caplog: Any) -> None:
    # As if another transaction had copied the reaper's row.
    copied = "INSERT INTO leasequeue_timeline VALUES (1, 1, 1, 1, 1, now())"
    for statement in ("SET ROLE NONE", "DELETE FROM leasequeue_timeline", copied):
        run(statement)
    connections["default"].close()
    two_rounds("timeline")
    (shown,) = [block.text.splitlines() for block in blocks("reference/grants.md") if block.language == "text"]
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [shown[1]]


def test_the_rights_that_the_page_names_are_enough_to_look_at_jobs(app: str) -> None:
    Queue("mail", dead_letter="self").enqueue({"to": 1}, key="one", tags={"shop": "1"})
    assert [(job.key, job.state) for job in Job.objects.all()] == [("one", "ready")]
    assert read_status("default").problems[-1].startswith("Nobody claims from mail")
    names = [name for (name,) in run("SELECT viewname FROM pg_views WHERE viewname LIKE 'leasequeue\\_%'")]
    assert "leasequeue_jobs" in names
    for name in names:
        run(f"SELECT count(*) FROM {name}")


@pytest.mark.parametrize(("name", "value", "why"), [
    ("statement_timeout", "200ms", "claims among them"), ("lock_timeout", "10ms", "an enqueue that waits"),
    ("default_transaction_isolation", "serializable", "could not serialize access"),
    ("default_transaction_read_only", "on", "nothing can be enqueued"),
])  # fmt: skip
def test_the_check_lists_settings_of_sessions_that_hurt(name: str, value: str, why: str) -> None:
    assert list(database_checks._role_settings("default")) == []
    run(f"SET {name} = '{value}'")
    try:
        (found,) = database_checks._role_settings("default")
    finally:
        connections["default"].close()
    assert (found.id, name in found.msg, why in found.msg) == ("leasequeue.W025", True, True)
