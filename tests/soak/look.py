"""The last look: what is left when all is quiet, read from the tables and written down as evidence."""

from __future__ import annotations

from typing import Any

import psycopg

from django_leasequeue.engine.verify import snapshot, verify

from .evidence import Witness

#: Rows of one entry.
PIECE = 5_000
#: Differences that are written down.
SHOWN = 20

LEFT = """
SELECT q.name, p.place, sum(p.jobs)::int FROM leasequeue_queue q JOIN (
    SELECT queue_id, 'ready' AS place, 1 AS jobs FROM leasequeue_ready
    UNION ALL SELECT queue_id, 'delayed', 1 FROM leasequeue_delayed d
    -- What comes after a job that has failed stays with its workflow.
    WHERE NOT EXISTS (SELECT FROM leasequeue_member m WHERE m.seq = d.seq AND m.state = 3)
    UNION ALL SELECT queue_id, 'to be looked at by limits and workflows', 1 FROM leasequeue_flowturn
    UNION ALL SELECT queue_id, 'leased', cardinality(seqs) FROM leasequeue_claim
) p ON p.queue_id = q.id GROUP BY 1, 2 ORDER BY 1, 2
"""
OPEN = "SELECT id, total, completed, failed, cancelled FROM leasequeue_workflow WHERE ended_at IS NULL ORDER BY id"
DEAD = """
SELECT coalesce(j.data::jsonb #>> '{args,0}', j.data::jsonb ->> 'job')::bigint
FROM leasequeue_deadletter d JOIN leasequeue_job j USING (seq)
"""
RECORDS = """
SELECT j.seq, j.data::text::bigint FROM leasequeue_record r JOIN leasequeue_job j USING (seq)
JOIN leasequeue_queue q ON q.id = r.queue_id WHERE q.name = %s ORDER BY j.seq
"""
EFFECTS = "SELECT number, place, count(*)::int FROM soak_effect GROUP BY 1, 2"
EVENTS = "SELECT id, id FROM leasequeue_leaseevent ORDER BY id"


def jobs_left(connection: psycopg.Connection[Any]) -> list[str]:
    return [f"{jobs} jobs of {name} are {place}" for name, place, jobs in connection.execute(LEFT)]


def left(connection: psycopg.Connection[Any]) -> list[str]:
    """Return what is left of jobs that are not dead, and of their workflows, as text."""
    found = jobs_left(connection)
    for number, *counts in connection.execute(OPEN):
        found.append(f"workflow {number} has not ended (jobs, completed, failed, cancelled: {counts})")
    return found


def check(connection: psycopg.Connection[Any], witness: Witness) -> None:
    """Write down which jobs are left on a server, which are dead, and what is wrong with its tables."""
    for text in left(connection):
        witness.say("differs", f"at the end {text}")
    for (number,) in connection.execute(DEAD):
        witness.say("dead", number)
    with snapshot(connection) as executor:
        found = executor.run(verify(SHOWN))
    for one in found.differences[:SHOWN]:
        said = f"{one.difference} ({one.meaning}): seq {one.seq} of {one.queue}"
        witness.say("differs", f"{said}: expected {one.expected}, found {one.found}")


def look(connection: psycopg.Connection[Any], witness: Witness, topics: tuple[str, ...]) -> None:
    check(connection, witness)
    for topic in topics:
        _there(witness, topic, connection.execute(RECORDS, [topic]).fetchall())
    _there(witness, "events", connection.execute(EVENTS).fetchall())
    witness.say("effects", [list(row) for row in connection.execute(EFFECTS)])


def _there(witness: Witness, topic: str, rows: list[tuple[int, int]]) -> None:
    for at in range(0, len(rows), PIECE):
        witness.say("there", topic, [list(row) for row in rows[at : at + PIECE]])
