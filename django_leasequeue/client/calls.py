"""The calls of both clients, without IO of their own; see ``plans``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from ..twins import Runs, sync
from .messages import ClientJob, Page, Record, Settled, Suspension, Written, moment
from .plans import Plan, Request, address, claim_jobs, given, logger


class Calls(Runs):
    """The calls as methods for threads; ``AsyncClient`` has their twins."""

    @sync
    def put_topic(self, /, topic: str, **config: Any) -> Plan[dict[str, Any]]:
        """Make a topic, or replace its configuration; return the complete configuration.

        ``config`` is ``type="queue"``, ``lease_ms=``, ``max_deliveries=``, ``dead_letter=`` and so on; other fields get
        their defaults.
        """
        answer, _ = yield Request("PUT", address(topic), config)
        found: dict[str, Any] = answer["config"]
        return found

    @sync
    def get_topic(self, topic: str) -> Plan[dict[str, Any]]:
        """Return a topic: ``type``, ``head_seq``, ``count``, ``config``, and ``queue`` with the counters."""
        answer, _ = yield Request("GET", address(topic))
        return answer

    @sync
    def list_topics(self, prefix: str = "") -> Plan[list[str]]:
        """Return the names of all topics with ``prefix`` that the key may see."""
        names: list[str] = []
        query = {"prefix": prefix, "page_size": "1000"}
        while True:
            answer, _ = yield Request("GET", "topics", query=query)
            names += [item["topic"] for item in answer["topics"]]
            for warning in answer.get("warnings", ()):
                logger.warning("The list of topics: %s", warning)
            cursor = answer.get("next_cursor")
            if cursor is None:
                return names
            query = {**query, "cursor": cursor}

    @sync
    def delete_topic(self, topic: str, *, if_empty: bool = False) -> Plan[bool]:
        """Delete a topic and everything in it; return whether it existed.

        ``if_empty``: refuse if it has records (``TopicConflict``).
        """
        answer, sent = yield Request("DELETE", address(topic), query={"if_empty": "true"} if if_empty else {})
        return bool(answer["deleted"]) or sent > 1

    @sync
    def produce(
        self,
        topic: str,
        records: Iterable[Record | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        create: bool = True,
        config: Mapping[str, Any] | None = None,
    ) -> Plan[Written]:
        """Append 1 to 10,000 records (or objects with ``data``, ``tag``, ``meta``, ``node``), all or none.

        A retry after a failure appends nothing twice: every write has an idempotency key, valid for the topic's
        ``idempotency_window_ms`` (two minutes by default). With your own key, at most 1,024 bytes, a restarted program
        does not write twice either. ``create``: the first write makes the topic by ``config`` (by default a log).
        """
        body: dict[str, Any] = {
            "records": [record.body() if isinstance(record, Record) else dict(record) for record in records],
            "create": create,
            "idempotency_key": idempotency_key or uuid.uuid4().hex,
            **given(config=config and dict(config)),
        }
        answer, _ = yield Request("POST", address(topic), body)
        return Written.of(answer)

    @sync
    def claim(self, topic: str, node: str, max: int = 1, *, lease_ms: int | None = None) -> Plan[list[ClientJob]]:
        """Lease up to ``max`` jobs (1,000 at most) to a node; fewer, or none, if the queue is (nearly) empty.

        ``node`` is the worker's name, 1 to 128 bytes; ``lease_ms`` the length of the leases, by default the topic's.
        """
        return claim_jobs(topic, node, max, lease_ms)

    @sync
    def ack(
        self,
        topic: str,
        node: str,
        jobs: Sequence[ClientJob | int],
        *,
        results: Sequence[Any] | None = None,
        result_ttl_ms: int | None = None,
    ) -> Plan[Settled]:
        """Complete and delete jobs of a claim, at most 1,000.

        Seqs alone do not protect against a lease that the same node lost and took again. ``results`` has one JSON value
        for each job, in order, for callers that wait. They are kept for ``result_ttl_ms``; by default as the job or the
        topic says.
        """
        options = given(results=None if results is None else list(results), result_ttl_ms=result_ttl_ms)
        return (yield from _settle(topic, "ack", node, jobs, **options))

    @sync
    def nack(self, topic: str, node: str, jobs: Sequence[ClientJob | int], *, delay_ms: int = 0) -> Plan[Settled]:
        """Give jobs back for another delivery, not before ``delay_ms``; see ``ack``."""
        return (yield from _settle(topic, "nack", node, jobs, delay_ms=delay_ms))

    @sync
    def extend(self, topic: str, node: str, jobs: Sequence[ClientJob | int], lease_ms: int) -> Plan[Settled]:
        """Set the end of the leases to now + ``lease_ms``; see ``ack``.

        Jobs that are no longer held become ``lost``.
        """
        return (yield from _settle(topic, "extend", node, jobs, lease_ms=lease_ms))

    @sync
    def read_steps(self, node: str, job: ClientJob) -> Plan[dict[str, Any]]:
        """Return the values of a job's steps, by name, in order; ``LeaseLost``: its lease is over."""
        found: dict[str, Any] = {}
        query = {"node": node, "lease_id": job.lease_id}
        while True:
            answer, _ = yield Request("GET", address(job.topic, f"/jobs/{job.seq}/steps"), query=query)
            found |= {step["name"]: step["value"] for step in answer["steps"]}
            if "next" not in answer:
                return found
            query = {**query, "after": str(answer["next"])}

    @sync
    def record_step(self, node: str, job: ClientJob, name: str, value: Any) -> Plan[Any]:
        """Record the value of a step of a leased job, unless there is one; return the recorded value.

        ``name`` has 1 to 200 characters; a repeated step has a number: ``page#2``. ``LeaseLost``: it is not recorded.
        """
        body = {"node": node, "lease_id": job.lease_id, "value": value}
        answer, _ = yield Request("PUT", address(job.topic, f"/jobs/{job.seq}/steps/{quote(name, safe='')}"), body)
        return answer["value"]

    @sync
    def suspend(
        self,
        node: str,
        job: ClientJob,
        *,
        name: str | None = None,
        sleep_ms: int | None = None,
        until: datetime | None = None,
        event: str | None = None,
        timeout_ms: int | None = None,
    ) -> Plan[Suspension]:
        """Suspend a leased job until a time or an event; return whether it was suspended, or is over.

        It sleeps for ``sleep_ms`` or ``until`` a time, or waits for an ``event``, at most ``timeout_ms`` (``None``: 100
        years). ``name`` names the sleep or wait, as for a step; a sleep needs it. ``LeaseLost``: its lease is over.
        """
        moment_ms = None if until is None else round(until.timestamp() * 1_000)
        what = given(name=name, sleep_ms=sleep_ms, event=event, timeout_ms=timeout_ms, until=moment_ms)
        body = {"node": node, "lease_id": job.lease_id, **what}
        answer, _ = yield Request("POST", address(job.topic, f"/jobs/{job.seq}/suspend"), body)
        timed_out = bool(answer.get("timed_out"))
        return Suspension(answer["suspended"], answer.get("left_ms", 0), answer.get("payload"), timed_out)

    @sync
    def emit(self, event: str, payload: Any = None, *, retention_ms: int | None = None) -> Plan[bool]:
        """Emit an event: jobs of the key's project that wait for it continue.

        Return whether it is the first of its name (1 to 512 bytes); a later one has no effect. It is kept for later
        waits for ``retention_ms``; by default seven days.
        """
        body = {"payload": payload, **given(retention_ms=retention_ms)}
        answer, _ = yield Request("POST", f"events/{quote(event, safe='')}", body)
        return bool(answer["first"])

    @sync
    def read(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        limit: int = 256,
        skip_nodes: Sequence[str] = (),
        wait_ms: int = 0,
        timeline: int | None = None,
        reset: bool = False,
    ) -> Plan[Page]:
        """Read up to ``limit`` records (1,000 at most) after ``from_seq``, without leasing them.

        Pass ``next_from_seq`` and ``timeline`` of the page before: after a failover that may have lost records that you
        have read, this raises ``LogTruncated``; with ``reset`` it reads from the last safe number instead.
        ``skip_nodes`` skips records of these producers; ``wait_ms`` (up to 30,000) is how long to wait for a record.
        """
        more = given(node=list(skip_nodes) or None, timeline=timeline, reset=reset or None)
        body = {"from_seq": from_seq, "limit": limit, "wait_ms": wait_ms, "include_tags": True, **more}
        answer, _ = yield Request("POST", address(topic, "/diff"), body, wait=wait_ms / 1000)
        return Page.of(answer)

    @sync
    def delete_records(self, topic: str, *, before_seq: int | None = None, match: str | None = None) -> Plan[int]:
        """Delete records, leased jobs too; return how many.

        Select them by a number below ``before_seq``, by the tag ``match`` (a prefix, if it ends with ``*``), or both.
        """
        answer, _ = yield Request("POST", address(topic, "/delete"), given(before_seq=before_seq, match=match))
        return int(answer["deleted"])


def _settle(topic: str, how: str, node: str, jobs: Sequence[ClientJob | int], **options: Any) -> Plan[Settled]:
    if not jobs:
        return Settled(0, [])
    lease_ids = [job.lease_id for job in jobs if isinstance(job, ClientJob)]
    seqs = [job.seq if isinstance(job, ClientJob) else job for job in jobs]
    body = {"node": node, "seqs": seqs, **options, **({"lease_ids": lease_ids} if len(lease_ids) == len(jobs) else {})}
    answer, sent = yield Request("POST", address(topic, f"/{how}"), body)
    deadlines = {int(seq): moment(at) for seq, at in answer.get("deadlines", {}).items()}
    for job in jobs if how == "extend" else ():
        if isinstance(job, ClientJob):
            if job.seq in deadlines:
                job.deadline = deadlines[job.seq]
            else:
                job.lose()
            if job.seq in answer.get("cancelled", ()):
                job.lose(cancelled=True)
    return Settled(answer[f"{how}ed"], answer["skipped"], sent > 1, deadlines)
