"""Jobs pushed over server-sent events, on real sockets, between two server processes that never look by themselves."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.conf.options import ApiOptions
from django_leasequeue.engine import NewJob, Node
from django_leasequeue.models import Claim, JobEvent, LiveJob
from tests.http.client import Api
from tests.http.servers import Event, EventSource, Server, serving
from tests.support.environment import child_environment
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]


@pytest.fixture
def queue(server: Server, topic: str) -> str:
    # What is given back is given back: no lease ends while a test goes on.
    server.put(f"topics/{topic}", {"type": "queue", "lease_ms": 600_000})
    return topic


def work(server: Server, queue: str, node: str = "w1", size: int = 1, **query: object) -> EventSource:
    words = "".join(f"&{name}={value}" for name, value in query.items())
    stream = EventSource(server, f"topics/{queue}/work?node={node}&max={size}{words}")
    assert stream.status == 200
    return stream


def ack(server: Server, queue: str, *jobs: Event, node: str = "w1") -> None:
    answer = server.post(f"topics/{queue}/ack", {"node": node, "seqs": [job["$seq"] for job in jobs]})
    assert answer["acked"] == len(jobs)


def counters(server: Server, queue: str) -> tuple[int, int]:
    found = server.state(queue)["queue"]
    return found["ready"], found["in_flight"]


@pytest.mark.parametrize(("accept", "status"), [
    ("text/event-stream", 200), ("text/html, text/event-stream;q=0.5", 200), ("*/*", 200),
    (None, 200),  # the header is not there
    ("application/json", 406), ("", 406), ("text/event-stream;q=0", 406),
])  # fmt: skip
def test_a_stream_is_for_clients_that_accept_it(server: Server, queue: str, accept: str | None, status: int) -> None:
    with EventSource(server, f"topics/{queue}/work?node=w1", accept=accept) as stream:
        assert stream.status == status
        assert status == 200 or stream.refusal == (406, "not_acceptable")


def test_a_bad_request_for_a_stream_is_refused(server: Server, queue: str) -> None:
    server.put(f"topics/{queue}.log", {"type": "log"})
    refused = {
        **{(queue, query): (400, "invalid_request") for query in (
            "", "node=", f"node={'x' * 129}", "node=w&max=0", "node=w&max=-1", "node=w&max=x", "node=w&lease_ms=x",
        )},
        (f"{queue}.log", "node=w1"): (409, "not_a_queue"), (f"{queue}.none", "node=w1"): (404, "topic_not_found"),
    }  # fmt: skip
    for (name, query), refusal in refused.items():
        with EventSource(server, f"topics/{name}/work?{query}") as stream:
            assert stream.refusal == refusal, (name, query)


@pytest.mark.slow
def test_a_silent_stream_sends_heartbeats(test_database_url: str, topic: str) -> None:
    assert ApiOptions().HEARTBEAT_SECONDS == 15
    for (server,) in serving(child_environment(test_database_url), api={"HEARTBEAT_SECONDS": 0.05}):
        server.put(f"topics/{topic}", {"type": "queue"})
        with work(server, topic) as stream:
            blocks = [stream.block() for _ in range(5)]
            assert blocks == [["retry: 2000"], [": hb"], [": hb"], [": hb"], [": hb"]]


def test_a_stream_begins_with_a_heartbeat_and_sends_jobs(server: Server, queue: str) -> None:
    body = {"records": [{"data": {"n": 1}, "tag": "a", "meta": {"trace": "z"}}]}
    (seq,) = server.post(f"topics/{queue}", body)["seqs"]
    with work(server, queue, lease_ms=5000) as stream:
        assert (stream.headers["content-type"], stream.headers["cache-control"]) == ("text/event-stream", "no-store")
        assert stream.headers["x-accel-buffering"] == "no"
        assert [stream.block(), stream.block()] == [["retry: 2000"], [": hb"]]
        job = stream.event()
        assert (job.name, job.id) == ("job", str(seq))
        assert set(job) == {"topic", "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"}
        assert (job["topic"], job["$seq"], job["deliveries"], job["data"]) == (queue, seq, 1, {"n": 1})
        row = LiveJob.objects.get(seq=seq)
        assert (row.node, (row.deadline - row.claimed_at).total_seconds()) == ("w1", 5)
        assert server.post(
            f"topics/{queue}/ack", {"node": "w1", "seqs": [seq], "lease_ids": [job["lease_id"]]}
        )["acked"] == 1  # fmt: skip


def test_a_stream_never_holds_more_than_max_jobs(server: Server, other: Server, queue: str) -> None:
    with work(server, queue, size=3) as stream:
        seqs = other.write(queue, *range(10))
        jobs = stream.events(3)
        assert [job["$seq"] for job in jobs] == seqs[:3]
        stream.silence(0.2)
        assert counters(server, queue) == (7, 3)
        ack(other, queue, jobs[1])
        assert stream.event()["$seq"] == seqs[3]
        stream.silence(0.2)
        ack(server, queue, jobs[0], jobs[2])
        assert [job["$seq"] for job in stream.events(2)] == seqs[4:6]
        assert counters(server, queue) == (4, 3)


@pytest.mark.parametrize("delay", [0, 300])
def test_a_nacked_job_comes_again_when_it_is_due(server: Server, other: Server, queue: str, delay: int) -> None:
    (seq,) = server.write(queue, "again")
    with work(server, queue) as stream:
        for delivery in range(1, 4):
            job = stream.event()
            assert (job["$seq"], job["deliveries"]) == (seq, delivery)
            other.post(f"topics/{queue}/nack", {"node": "w1", "seqs": [seq], "delay_ms": delay})


def test_a_job_whose_lease_expired_comes_again(server: Server, queue: str) -> None:
    seqs = server.write(queue, 1, 2)
    with work(server, queue, lease_ms=300) as stream:
        assert stream.event()["$seq"] == seqs[0]
        again = stream.event()
        assert (again["$seq"], again["deliveries"]) == (seqs[0], 2)


@pytest.mark.slow
def test_an_extended_job_still_counts_towards_max(server: Server, queue: str) -> None:
    seqs = server.write(queue, 1, 2)
    longer = {"node": "w1", "seqs": seqs[:1], "lease_ms": 60_000}
    with work(server, queue, lease_ms=1_500) as stream:
        job = stream.event()
        # Where the machine stood still for as long as the lease, the job is there once more.
        while not server.post(f"topics/{queue}/extend", longer)["extended"]:
            job = stream.event()
        stream.silence(2.0)
        ack(server, queue, job)
        assert stream.event()["$seq"] == seqs[1]


def test_a_deleted_job_makes_room_for_another(server: Server, queue: str) -> None:
    seqs = server.write(queue, 1, 2)
    with work(server, queue) as stream:
        stream.event()
        server.post(f"topics/{queue}/delete", {"before_seq": seqs[1]})
        assert stream.event()["$seq"] == seqs[1]


@pytest.mark.django_db(transaction=True)
def test_a_cancelled_workflow_is_announced_once_for_each_job(server: Server, other: Server, queue: str) -> None:
    with work(server, queue, size=2) as stream, work(other, queue, "w2", size=2) as second:
        uid = uuid4()
        engine.run(engine.start_workflow([Node(queue, NewJob(n)) for n in range(4)], uid))
        server.write(queue, "alone")
        jobs = {job["$seq"]: job for job in (*stream.events(2), *second.events(2))}
        engine.run(engine.cancel_workflow(uid))
        heard = [*stream.events(2), *second.events(2)]
        assert [(one.name, one.id) for one in heard] == [("cancel", None)] * 4
        leases = {seq: (job["topic"], job["lease_id"]) for seq, job in jobs.items()}
        assert {one["$seq"]: (one["topic"], one["lease_id"]) for one in heard} == leases
        first = [one["$seq"] for one in heard[:2]]
        answer = server.post(f"topics/{queue}/extend", {"node": "w1", "seqs": first, "lease_ms": 60_000})
        assert (answer["extended"], answer["skipped"], sorted(answer["cancelled"])) == (2, [], sorted(first))
        for node, seqs in ("w1", first), ("w2", [one["$seq"] for one in heard[2:]]):
            assert server.post(f"topics/{queue}/nack", {"node": node, "seqs": seqs})["nacked"] == 2
        eventually(lambda: engine.run(engine.get_workflow(uid)).cancelled == 4)


def test_a_closed_connection_gives_everything_back(server: Server, queue: str) -> None:
    for way in ("close", "reset"):
        seqs = server.write(queue, 1, 2, 3)
        stream = work(server, queue, size=2)
        stream.events(2)
        assert counters(server, queue) == (1, 2)
        getattr(stream, way)()
        eventually(lambda: counters(server, queue) == (3, 0))
        events = JobEvent.objects.filter(seq__in=seqs, kind=4)
        assert sorted(events.values_list("seq", flat=True)) == seqs[:2]
        server.post(f"topics/{queue}/delete", {"before_seq": seqs[-1] + 1})


def test_a_closed_stream_gives_back_only_its_own_jobs(server: Server, queue: str) -> None:
    server.write(queue, *range(6))
    claimed = server.post(f"topics/{queue}/claim", {"node": "w1", "max": 2})["claimed"]
    with work(server, queue, size=2) as staying:
        staying.events(2)
        leaving = work(server, queue, size=2)
        leaving.events(2)
        assert counters(server, queue) == (0, 6)
        leaving.close()
        eventually(lambda: counters(server, queue) == (2, 4))
    eventually(lambda: counters(server, queue) == (4, 2))
    answer = server.post(f"topics/{queue}/ack", {"node": "w1", "seqs": [job["$seq"] for job in claimed]})
    assert answer["acked"] == 2


def test_a_closed_stream_leaves_settled_jobs(server: Server, queue: str) -> None:
    seqs = server.write(queue, 1, 2)
    stream = work(server, queue, size=2)
    first, second = stream.events(2)
    ack(server, queue, first)
    server.post(f"topics/{queue}/nack", {"node": "w1", "seqs": [second["$seq"]]})
    again = stream.event()
    assert (again["$seq"], again["deliveries"]) == (seqs[1], 2)
    stream.close()
    eventually(lambda: counters(server, queue) == (1, 0))
    assert server.state(queue)["count"] == 1


@pytest.mark.parametrize("when", ["idle", "full", "made a log"])
def test_a_deleted_topic_ends_the_stream(server: Server, other: Server, queue: str, when: str) -> None:
    with work(server, queue) as stream:
        if when == "full":
            server.write(queue, 1)
            stream.event()
        else:
            stream.block()
        other.call("DELETE", f"topics/{queue}")
        if when == "made a log":
            other.put(f"topics/{queue}", {"type": "log"})
        error = stream.event()
        assert (error.name, error["code"], "message" in error) == ("error", 409, True)
        stream.end()


@pytest.mark.slow
def test_shutdown_ends_streams_in_order(test_database_url: str, server: Server, queue: str) -> None:
    server.write(queue, 1, 2, 3)
    for (leaving,) in serving(child_environment(test_database_url)):
        records = EventSource(leaving, leaving.post("watch", {"topics": {queue: 0}})["stream_url"])
        with work(leaving, queue, size=2) as stream, work(leaving, queue, node="w2", size=1) as second, records:
            assert len([*stream.events(2), *second.events(1), *records.events(4)]) == 3 + 4
            leaving.terminate()
            for one in (stream, second, records):
                error = one.event()
                assert (error.name, error["code"], bool(error.id)) == ("error", 503, one is records)
                one.end()
            assert leaving.process.wait(60) in (0, -15)
    assert counters(server, queue) == (3, 0)  # nothing waits for its lease to end


@pytest.mark.slow
def test_leases_of_a_killed_server_last_until_their_end(test_database_url: str, server: Server, queue: str) -> None:
    seqs = server.write(queue, 1)
    for (dying,) in serving(child_environment(test_database_url)):
        with work(dying, queue, lease_ms=400) as stream:
            stream.event()
            dying.kill()
            with work(server, queue, "w2") as rescue:
                assert rescue.event()["$seq"] == seqs[0]


@pytest.mark.slow
def test_five_hundred_streams_and_one_listener(server: Server, queue: str) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(work(server, queue, f"w{n}")) for n in range(500)]
        for stream in streams:
            stream.block()
        seqs: list[int] = []
        for _ in range(5):
            seqs += server.write(queue, *range(100))
        found = [stream.event() for stream in streams]
        assert sorted(job["$seq"] for job in found) == seqs
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
                " OR datname = current_database() AND query ~ 'pg_advisory_lock_shared'"
            )
            row = cursor.fetchone()
        assert row[0] <= 2  # at most one for each of the two processes
        assert Claim.objects.filter(connection__isnull=False).exists()
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda one: ack(server, queue, one[1], node=f"w{one[0]}"), enumerate(found[:20])))
        more = server.write(queue, *range(20))
        assert sorted(stream.event()["$seq"] for stream in streams[:20]) == more
    eventually(lambda: counters(server, queue) == (500, 0))


@pytest.mark.slow
def test_requests_that_are_refused_pace_the_stream(test_database_url: str, queue: str) -> None:
    for (paced,) in serving(child_environment(test_database_url), api={"RATE_PER_SECOND": 4}):

        def status(method: str, path: str, body: object = None, paced: Server = paced) -> int:
            return paced.call(method, f"topics/{queue}{path}", body)[0]

        with work(paced, queue) as stream:
            stream.block()
            eventually(lambda: status("GET", "") == 429)
            error = stream.event()
            assert (error.name, error["code"]) == ("error", 429)
            assert 0 <= error["retry_after_ms"] <= 1_000
            eventually(lambda: status("POST", "", {"records": [{"data": 1}]}) == 200)
            assert "job" in iter(lambda: stream.event().name, None)


def test_under_wsgi_a_stream_says_that_it_needs_asgi(api: Api) -> None:
    api.queue("jobs")
    answer = api.get("topics/jobs/work?node=w1", headers={"accept": "text/event-stream"}, status=503)
    assert (answer.code, "ASGI" in answer.message) == ("not_ready", True)
