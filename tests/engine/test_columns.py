"""The rows of statements by name: a class has as many fields as its statement has columns."""

from typing import Any

import psycopg
import pytest

from django_leasequeue.engine.dead import action, bulkoperation, deadletter, search
from django_leasequeue.engine.jobs import enqueue as adding
from django_leasequeue.engine.jobs import keys as taken
from django_leasequeue.engine.jobs import read, replies, results, staged, unique
from django_leasequeue.engine.leases import cohort, floor, sweep, trail
from django_leasequeue.engine.pool import connect
from django_leasequeue.engine.queues import queues, snapshot, stats
from django_leasequeue.engine.rows import LeasedJob
from django_leasequeue.engine.topics import caps, log, messages, topics
from django_leasequeue.engine.upkeep import partitions, verify
from django_leasequeue.http import keys
from django_leasequeue.reaper import status, upkeep
from django_leasequeue.reaper.recurring import duty, enqueue
from django_leasequeue.sql import numbered

#: Statement -> the class of its rows.
ROWS: dict[str, Any] = {
    "apikey_find": keys.KeyRow,
    "bury": deadletter._Gone,
    "cap_count": caps._Live,
    "cap_note": caps._Room,
    "claim_get": messages._Held,
    "claim_look": trail.QueueLook,
    "dead_edit": action._Tried,
    "dead_group_figures": search.GroupRow,
    "dead_groups": search.LookedRow,
    "dead_lock": action._Locked,
    "dead_match": search.Match,
    "dead_newest": search.NewestRow,
    "dead_newest_group": search.NewestRow,
    "dead_oldest": search.NewestRow,
    "dead_oldest_group": search.NewestRow,
    "dead_queues": search.DeadQueue,
    "dead_rows": search.DeadRow,
    "due_expired": upkeep._Expired,
    "enqueue": adding.EnqueueRow,
    "event_grants": partitions._Grant,
    "event_needed": partitions._Needed,
    "event_partitions": partitions._Row,
    "floor": floor.Floor,
    "job_status": results.Status,
    "key_taken": taken.Holder,
    "lake/stage_jobs": staged._Staged,
    "message_ends": messages.End,
    "message_get": messages.Message,
    "message_list": messages.Message,
    "move": deadletter._Moved,
    "operation_change": bulkoperation.Changed,
    "operation_take": bulkoperation.TakenOperation,
    "queue_counts": stats._Counted,
    "queue_get": queues._Found,
    "queue_list": queues.QueueLine,
    "recurring_list": duty._Line,
    "recurring_take": enqueue.DueTask,
    "redrive": deadletter._Tried,
    "reply_results": replies.Reply,
    "server_status": status._Server,
    "spent": deadletter._Spent,
    "stat_pages": stats._Estimated,
    "stat_totals": stats.Totals,
    "sweep": sweep._Back,
    "topic_look": topics.TopicLook,
    "topic_seal": log.SealedView,  # the last column is another one
    "topic_state": topics._Stands,
    "unique_look": unique._Key,
    "verify_claims": verify._Counted,
    "verify_events": verify._Totals,
    "verify_floors": verify._Counted,
    "verify_jobs": verify._Counted,
}

#: Statement -> how many of its columns are not of the job, and the class of that.
IN_FRONT: dict[str, tuple[int, Any]] = {
    "claim": (1, LeasedJob),
    "claim_mixed": (2, LeasedJob),
    "cohort_take": (1, LeasedJob),
    "deal": (cohort._PLACE + 1, LeasedJob),
    "jobs": (2, read.JobRow),
    "queue_state": (2, snapshot.Waiting),  # one of them stands behind
}


def columns(connection: psycopg.Connection[Any], name: str) -> int:
    """How many columns a statement returns, as PostgreSQL says."""
    text, _ = numbered(name)
    prepared = connection.pgconn.prepare(b"described", text)
    assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, prepared.error_message
    found = connection.pgconn.describe_prepared(b"described").nfields
    connection.execute("DEALLOCATE described")
    return found


@pytest.fixture
def connection(transactional_db: None) -> Any:
    with connect("default") as made:
        yield made


def test_every_row_has_a_name_for_each_column(connection: psycopg.Connection[Any]) -> None:
    found = {name: columns(connection, name) for name in ROWS}
    assert found == {name: len(kind._fields) for name, kind in ROWS.items()}


def test_what_stands_in_front_of_a_job_is_left_out(connection: psycopg.Connection[Any]) -> None:
    found = {name: columns(connection, name) for name in IN_FRONT}
    assert found == {name: front + len(kind._fields) for name, (front, kind) in IN_FRONT.items()}


def test_a_read_of_a_topic_is_what_was_seen_and_the_topic_and_a_record(connection: psycopg.Connection[Any]) -> None:
    assert columns(connection, "topic_read") == log._RECORD + len(log.TopicRecord._fields)
