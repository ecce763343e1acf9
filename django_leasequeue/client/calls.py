"""The calls of both clients: each asks the server for something, without IO of its own; see ``plans``."""

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
        """Make a topic, or replace its configuration; return that, every field of it.

        ``config`` is ``type="queue"``, ``lease_ms=``, ``max_deliveries=``, ``dead_letter=`` and so on; what is left out
        has its default.
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
        """Return the names of all topics that begin with ``prefix`` and that the key may see."""
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
        """Delete a topic and everything in it; return whether it was there.

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

        Sent again after a failure, they are appended once: every write has an idempotency key, which counts for the
        topic's ``idempotency_window_ms`` (two minutes by default). With one of your own, at most 256 bytes, a program
        that was started again does not write twice. ``create``: the first write makes the topic, as ``config`` says (a
        log, if that says nothing).
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
        """Lease up to ``max`` jobs (1,000 at most) to a node. Fewer, or none, is no error: the queue is (nearly) empty.

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
        """Complete jobs, at most 1,000, as a claim gave them: they are deleted.

        Seqs alone are not protected against leases that were lost and taken again by the same node. ``results`` are
        what came of the jobs, any JSON for each of them in their order; who waits for one gets it. They are kept for
        ``result_ttl_ms``; by default as the job or the topic says.
        """
        options = given(results=None if results is None else list(results), result_ttl_ms=result_ttl_ms)
        return (yield from _settle(topic, "ack", node, jobs, **options))

    @sync
    def nack(self, topic: str, node: str, jobs: Sequence[ClientJob | int], *, delay_ms: int = 0) -> Plan[Settled]:
        """Give jobs back, to be delivered again after ``delay_ms`` at the earliest; see ``ack``."""
        return (yield from _settle(topic, "nack", node, jobs, delay_ms=delay_ms))

    @sync
    def extend(self, topic: str, node: str, jobs: Sequence[ClientJob | int], lease_ms: int) -> Plan[Settled]:
        """Set the end of the leases to now + ``lease_ms``; see ``ack``.

        Jobs that are not held any more become ``lost``.
        """
        return (yield from _settle(topic, "extend", node, jobs, lease_ms=lease_ms))

    @sync
    def read_steps(self, node: str, job: ClientJob) -> Plan[dict[str, Any]]:
        """Return what the steps of a job have returned, by name, in their order; ``LeaseLost`` if its lease is over."""
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
        """Keep what a step of a leased job has returned, unless it is kept already; return what is kept.

        ``name`` has 1 to 200 characters; a repeated step's has its number: ``page#2``. ``LeaseLost``: it is not kept.
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
        """Give a leased job back until its time or its event has come; say whether that is over.

        It sleeps for ``sleep_ms`` or ``until`` a time, or waits for an ``event``, at most ``timeout_ms`` (``None``: 100
        years). ``name`` is that of the sleep or wait, as of a step; needed for a sleep. ``LeaseLost``: its lease is
        over.
        """
        moment_ms = None if until is None else round(until.timestamp() * 1_000)
        what = given(name=name, sleep_ms=sleep_ms, event=event, timeout_ms=timeout_ms, until=moment_ms)
        body = {"node": node, "lease_id": job.lease_id, **what}
        answer, _ = yield Request("POST", address(job.topic, f"/jobs/{job.seq}/suspend"), body)
        timed_out = bool(answer.get("timed_out"))
        return Suspension(answer["suspended"], answer.get("left_ms", 0), answer.get("payload"), timed_out)

    @sync
    def emit(self, event: str, payload: Any = None, *, retention_ms: int | None = None) -> Plan[bool]:
        """Say that an event has happened: jobs of the key's project that wait for it go on.

        Return whether it is the first of its name (1 to 512 bytes): else nothing has changed. It is kept for those that
        wait later, ``retention_ms`` long; by default seven days.
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
        """Read up to ``limit`` records (1,000 at most) without leasing them, from behind ``from_seq`` on.

        Give ``next_from_seq`` and ``timeline`` of the page before: after a failover that may have lost what was read,
        ``LogTruncated`` is raised; with ``reset`` the page is read from where everything is kept for sure instead.
        ``skip_nodes`` leaves out what these producers wrote; ``wait_ms`` is how long to wait for a record, up to
        30,000.
        """
        more = given(node=list(skip_nodes) or None, timeline=timeline, reset=reset or None)
        body = {"from_seq": from_seq, "limit": limit, "wait_ms": wait_ms, "include_tags": True, **more}
        answer, _ = yield Request("POST", address(topic, "/diff"), body, wait=wait_ms / 1000)
        return Page.of(answer)

    @sync
    def delete_records(self, topic: str, *, before_seq: int | None = None, match: str | None = None) -> Plan[int]:
        """Delete records, leased jobs too; return how many.

        Only those with a number below ``before_seq``, only those with the tag ``match`` (with a ``*`` at its end: tags
        that begin so), or both; one of the two is needed.
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
