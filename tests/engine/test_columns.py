"""What statements return is named as the fields of the tuples that read it: the database describes each of them."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from django.db import connection
from psycopg.pq import ExecStatus

import django_leasequeue
from django_leasequeue.sql import numbered, paths

pytestmark = pytest.mark.django_db

#: Who reads a statement's rows, the column of its first field, and how many fields the rows give (None: all).
READ = {
    "admin/job_source": ("admin.jobs.Source", 0, None),
    "admin/walk_jobs": ("admin.job_list.JobHit", 5, None),
    "bury": ("engine.dead.deadletter._Gone", 0, 4),
    "claim": ("engine.rows.LeasedJob", 1, None),
    "claim_look": ("engine.leases.floor.QueueLook", 0, None),
    "claim_mixed": ("engine.rows.LeasedJob", 2, None),
    "cohort_open": ("engine.leases.cohort.Claimer", 1, None),
    "cohort_take": ("engine.rows.LeasedJob", 1, None),
    "dead_groups": ("engine.dead.triage.LookedRow", 0, None),
    "dead_match": ("engine.dead.search.Match", 0, None),
    "dead_rows": ("engine.dead.search.DeadRow", 0, None),
    "dead_new": ("reaper.concerns.Deaths", 0, None),
    "deal": ("engine.rows.LeasedJob", 5, None),
    "floor": ("engine.leases.floor.Floor", 0, None),
    "floor_mend": ("engine.leases.floor.MendedFloor", 0, None),
    "flow_look": ("engine.flow.advance._Looked", 0, None),
    "job_status": ("engine.jobs.results.Status", 0, None),
    "jobs": ("engine.jobs.read.JobRow", 2, None),
    "key_taken": ("engine.jobs.remove.Holder", 0, None),
    "lake_lag": ("metrics.figures.Lag", 0, None),
    "limit_busy": ("engine.flow.figures.KeyFigures", 4, None),
    "search_indexes": ("engine.search_index.SearchIndex", 0, None),
    "admin/task_errors": ("admin.taskpage._Error", 0, None),
    "admin/task_times": ("admin.taskpage._Times", 0, None),
    "limit_reset": ("engine.flow.declared.GivenBack", 0, None),
    "limit_list": ("engine.flow.figures.LimitFigures", 0, None),
    "member_get": ("engine.flow.figures.MemberRow", 0, None),
    "member_inputs": ("engine.flow.figures.Input", 0, None),
    "member_workflow": ("engine.flow.figures.MemberOf", 0, None),
    "message_ends": ("engine.topics.messages.End", 0, None),
    "message_get": ("engine.topics.messages.Message", 0, None),
    "message_list": ("engine.topics.messages.Message", 0, None),
    "move": ("engine.dead.deadletter._Gone", 0, None),
    "operation_change": ("engine.dead.bulkoperation.Changed", 0, None),
    "operation_take": ("engine.dead.bulkoperation.TakenOperation", 0, None),
    "queue_ages": ("metrics.figures.Ages", 1, None),
    "queue_counts": ("engine.queues.stats._Counted", 0, 19),
    "queue_health": ("reaper.concerns.Health", 0, 10),
    "queue_list": ("engine.queues.queues.QueueLine", 0, None),
    "queue_rest": ("metrics.figures.Rest", 0, None),
    "queue_state": ("engine.queues.stats.Waiting", 1, None),
    "queue_writers": ("engine.queues.queues.Writer", 0, None),
    "recurring_due": ("reaper.recurring._Line", 0, None),
    "recurring_take": ("reaper.ticks.DueTask", 1, None),
    "remove": ("engine.jobs.remove.Removed", 0, None),
    "routes": ("engine.queues.moving.Move", 0, 5),
    "stat_pages": ("engine.queues.stats.Estimate", 2, None),
    "stat_totals": ("engine.queues.stats.Totals", 0, None),
    "step_page": ("engine.jobs.steps.KeptStep", 0, None),
    "suspended": ("metrics.figures.SuspendedJobs", 0, None),
    "tagged_jobs": ("engine.jobs.read.TaggedJob", 1, None),
    "task_pauses": ("engine.jobs.pausing.PausedTask", 0, None),
    "task_result": ("tasks.lookup.ResultRow", 0, None),
    "topic_look": ("engine.topics.topics.TopicLook", 0, None),
    "topic_read": ("engine.topics.log.SealedView", 0, None),
    "topic_seal": ("engine.topics.log.SealedView", 0, None),
    "topic_state": ("engine.topics.topics._Stands", 0, None),
    "turn_take": ("engine.flow.advance._Turn", 0, None),
    "unique_look": ("engine.jobs.unique._Key", 0, None),
    "workflow_get": ("engine.flow.figures.WorkflowStatus", 0, None),
    "workflow_nodes": ("engine.flow.figures.NodeRow", 0, None),
}


def columns(name: str) -> list[str]:
    """The names of a statement's columns."""
    connection.ensure_connection()
    raw = connection.connection.pgconn
    made = raw.prepare(b"", numbered(name)[0])
    assert made.status == ExecStatus.COMMAND_OK, f"{name}: {made.error_message.decode()}"
    said = raw.describe_prepared(b"")
    return [(said.fname(number) or b"").decode() for number in range(said.nfields)]


@pytest.mark.parametrize("name", READ)
def test_columns_are_named_as_the_fields_that_read_them(name: str) -> None:
    reader, first, count = READ[name]
    module, reads = reader.rsplit(".", 1)
    fields = list(getattr(import_module(f"django_leasequeue.{module}"), reads).__annotations__)[:count]
    assert columns(name)[first : first + len(fields)] == fields


def test_the_database_takes_every_statement() -> None:
    """But those of which a caller makes the text, COPY, which cannot be prepared, and tables of other packages."""
    apart = {"lake/probe", "celery_beat"}
    texts = {name: numbered(name)[0] for name in paths() if not name.startswith("ddl/") and name not in apart}
    taken = [name for name, text in texts.items() if not text.startswith(b"COPY")]
    assert len(taken) > 290
    for name in taken:
        columns(name)


def test_every_tuple_that_is_made_of_rows_is_compared() -> None:
    """A function that names a statement and makes a tuple of its rows has one of its statements above."""
    made, names = 0, set(paths())
    for path in Path(django_leasequeue.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.search(
                r"\w\._make\(rows?\b", ast.unparse(node)
            ):
                run = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)} & names
                made += bool(run)
                assert not run or run & set(READ), f"{path.name}: {node.name} reads {sorted(map(str, run))}"
    assert made > 30
