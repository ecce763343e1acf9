"""The deliberate faults: what is changed in which file of the package, and under which faults of the soak it shows."""

from __future__ import annotations

from typing import NamedTuple


class Patch(NamedTuple):
    """A text in a file of the package, and what stands in its place; wherever it stands in the file."""

    file: str
    old: str
    new: str


class Sabotage(NamedTuple):
    """A fault in our code."""

    name: str
    patches: tuple[Patch, ...]
    faults: tuple[str, ...]
    #: Whether it shows in late work, or in what is left over. A slow machine shows these as well: else they do not count.
    delays: bool = False


#: Nothing that harms: what shows by itself shows under this as well.
QUIET = ("snapshot held",)
DEATHS = ("worker killed", "task: exit", "web worker killed")
SILENCE = ("worker hung", "worker refused")
CRASHES = ("postmaster killed", "stopped immediately")

_HELD = "c.token = ANY (%(tokens)s::bigint[]) AND c.node = %(node)s::text"
_LISTED = "c.token = ANY (%(tokens)s::bigint[])"

SABOTAGES = (
    Sabotage(
        "an ack ignores token and node",
        (
            Patch(
                "sql/leases/finish_one.sql",
                "c.token = %(token)s::bigint AND c.node = %(node)s::text AND %(seq)s::bigint = ANY (c.seqs)",
                "%(seq)s::bigint = ANY (c.seqs)",
            ),
            Patch("sql/leases/finish_one.sql", "c.token = %(token)s::bigint AND", "c.token = k.token AND"),
            Patch("sql/leases/finish_some.sql", _HELD, "c.seqs && %(seqs)s::bigint[]"),
            Patch("sql/leases/finish_some.sql", "i.seq = u.seq AND i.claim = k.token", "i.seq = u.seq"),
            Patch("sql/leases/finish_some.sql", _LISTED, "c.seqs IS NOT NULL"),
            Patch("sql/leases/finish.sql", _HELD, "c.seqs && %(seqs)s::bigint[]"),
            Patch("sql/leases/finish.sql", "i.i_seq = u.seq AND i.i_claim = k.token", "i.i_seq = u.seq"),
            Patch("sql/leases/finish.sql", _LISTED, "c.seqs IS NOT NULL"),
        ),
        QUIET,
    ),
    Sabotage(
        "an extension ignores the node",
        (Patch("sql/leases/extend.sql", _HELD, _LISTED),),
        QUIET,
    ),
    Sabotage(
        "a nack ignores the token",
        (
            Patch("sql/leases/release.sql", _HELD, "c.seqs && %(seqs)s::bigint[] AND c.node = %(node)s::text"),
            Patch("sql/leases/release.sql", "i.i_seq = u.seq AND i.i_claim = k.token", "i.i_seq = u.seq"),
            Patch("sql/leases/release.sql", _LISTED, "c.seqs IS NOT NULL"),
        ),
        QUIET,
    ),
    Sabotage(
        "an extension is three seconds shorter in the database than the worker is told",
        (
            Patch(
                "sql/leases/extend.sql",
                "deadline = CASE WHEN m.left_seqs IS NULL THEN k.until ELSE",
                "deadline = CASE WHEN m.left_seqs IS NULL THEN k.until - interval '3 s' ELSE",
            ),
        ),
        SILENCE,
    ),
    Sabotage(
        "a sweep loses jobs at their first delivery",
        (Patch("sql/leases/sweep.sql", "WHERE r.state = 0\n)", "WHERE r.state = 0 AND r.delivery > 1\n)"),),
        DEATHS,
    ),
    Sabotage(
        "a running job is not told that its lease ends",
        (Patch("worker/leases.py", 'control.abort("lease_lost")', "pass"),),
        SILENCE,
    ),
    Sabotage(
        "a job is started though its lease is over",
        (
            Patch(
                "worker/leases.py",
                "return lease is None or lease.forbids(job, time.monotonic())",
                "return False",
            ),
        ),
        SILENCE,
    ),
    Sabotage(
        "a limit has room for two more",
        (
            Patch(
                "sql/flow/flow_admit.sql",
                "CASE WHEN l.concurrency IS NOT NULL THEN l.concurrency - (",
                "CASE WHEN l.concurrency IS NOT NULL THEN l.concurrency + 2 - (",
            ),
        ),
        QUIET,
    ),
    Sabotage(
        "a rate gives three times as many starts",
        (
            Patch("sql/flow/flow_admit.sql", "k.rate + k.burst - k.spent", "3 * k.rate + k.burst - k.spent"),
            Patch(
                "sql/flow/flow_admit.sql", "/ extract(epoch FROM k.each) + 1", "/ extract(epoch FROM k.each) * 3 + 6"
            ),
        ),
        ("queue paused",),
    ),
    Sabotage(
        "a limit takes the newest job first",
        (
            Patch(
                "sql/flow/flow_admit.sql",
                "WHERE m.key = k.id AND m.waits ORDER BY m.rank, m.seq\n",
                "WHERE m.key = k.id AND m.waits ORDER BY m.rank, m.seq DESC\n",
            ),
            Patch(
                "sql/flow/flow_admit.sql",
                "(%(queues)s::bigint[]) ORDER BY m.rank, m.seq\n",
                "(%(queues)s::bigint[]) ORDER BY m.rank, m.seq DESC\n",
            ),
        ),
        QUIET,
    ),
    Sabotage(
        "a paused queue is claimed from",
        tuple(
            Patch(f"sql/leases/{name}.sql", "q.paused_at IS NULL", "true")
            for name in ("claim", "claim_mixed", "claim_look")
        ),
        ("queue paused",),
    ),
    Sabotage(
        "a job starts when the first of its parents has ended",
        (Patch("sql/flow/flow_children.sql", "WHERE d.pending = 0 AND", "WHERE"),),
        QUIET,
    ),
    Sabotage(
        "a job gets what its parents returned in another order",
        (Patch("sql/flow/member_inputs.sql", "ORDER BY u.n", "ORDER BY u.n DESC"),),
        QUIET,
    ),
    Sabotage(
        "the cancel of a workflow leaves what waits",
        (Patch("sql/flow/workflow_cancel.sql", "m.state IN (0, 3)", "m.state IN (3)"),),
        QUIET,
    ),
    Sabotage(
        "workers do not hear of a cancel",
        (Patch("sql/notify/leases_taken.sql", "pg_notify('leasequeue', 'l' || u.id)", "pg_notify('nobody', '')"),),
        QUIET,
    ),
    Sabotage(
        "a unique key is free while its job waits",
        (Patch("sql/jobs/unique_look.sql", "WHEN p.waits THEN 0 ELSE 1 END AS verdict", "ELSE 2 END AS verdict"),),
        QUIET,
    ),
    Sabotage(
        "a key is free again when its job has ended",
        (
            Patch(
                "sql/jobs/key_taken.sql",
                "WHEN p.state >= 10 THEN (q.dedup_until <> 'result_ttl' OR p.state = 13 OR p.expires_at <= q.now)::int",
                "WHEN p.state >= 10 THEN 1",
            ),
        ),
        QUIET,
    ),
    Sabotage(
        "a commit is answered before it is on disk",
        (
            *(
                Patch(f"sql/jobs/{name}.sql", "durability <> 'fsync' THEN set_config", "true THEN set_config")
                for name in ("enqueue", "enqueue_one")
            ),
        ),
        CRASHES,
    ),
    Sabotage(
        "a caller gets the answer of the job before",
        (
            Patch("queue/request.py", "    seq = receipt.seq\n", "    seq = receipt.seq - 1\n"),
            Patch(
                "queue/request.py", "if receipt.created_at is not None and row.", "if row.created_at is None and row."
            ),
        ),
        QUIET,
    ),
    Sabotage(
        "a log is read beyond what has committed",
        tuple(
            Patch(f"sql/topics/{name}.sql", "CASE WHEN w.mark <= w.oldest THEN w.last END", "w.last")
            for name in ("topic_read", "topic_seal")
        ),
        QUIET,
    ),
    Sabotage(
        "a page of a log begins with the last record of the one before",
        (Patch("sql/topics/topic_read.sql", "o.seq > %(after)s::bigint", "o.seq >= %(after)s::bigint"),),
        QUIET,
    ),
    Sabotage(
        "the event stream is read beyond transactions that go on",
        (Patch("sql/lake/horizon.sql", "pg_snapshot_xmin(", "pg_snapshot_xmax("),),
        ("transaction held open",),
    ),
    Sabotage(
        "it is tried once a minute to reach the database again",
        (Patch("engine/outage.py", "FIRST_RETRY, LAST_RETRY = 0.1, 1.5", "FIRST_RETRY, LAST_RETRY = 60.0, 60.0"),),
        CRASHES,
        delays=True,
    ),
)
