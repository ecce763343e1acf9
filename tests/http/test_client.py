"""``django_leasequeue.client`` against real servers: every call; ``AsyncClient`` is made of the same bodies."""

import asyncio
import threading
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from django_leasequeue.client import (
    AsyncClient,
    Client,
    Forbidden,
    InvalidRequest,
    NotAQueue,
    Record,
    TopicConflict,
    TopicFull,
    TopicNotFound,
    Unauthorized,
)
from django_leasequeue.models import JobResult
from tests.http.servers import Server, committed_key, serving
from tests.support.environment import child_environment
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]


def test_a_topic_is_put_listed_shown_and_deleted(client: Client, topic: str) -> None:
    config = client.put_topic(topic, type="queue", lease_ms=20_000)
    assert (config["type"], config["lease_ms"]) == ("queue", 20_000)
    assert client.list_topics(topic) == [topic]
    assert client.get_topic(topic)["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    assert [client.delete_topic(topic), client.delete_topic(topic)] == [True, False]


def test_jobs_are_produced_claimed_and_extended(client: Client, topic: str) -> None:
    client.put_topic(topic, type="queue", lease_ms=20_000)
    written = client.produce(topic, [Record({"n": 1}, tag="a", meta={"trace": "z"}), {"data": None}, Record(3)])
    assert (len(written.seqs), written.created, written.deduped) == (3, False, False)
    before = datetime.now(UTC)
    first, second, third = client.claim(topic, "w1", 5)
    assert [first.seq, second.seq, third.seq] == written.seqs
    assert (first.data, first.tag, first.meta, first.deliveries) == ({"n": 1}, "a", {"trace": "z"}, 1)
    assert (second.data, second.tag, second.meta) == (None, None, None)
    assert timedelta(seconds=19) < first.deadline - before < datetime.now(UTC) - before + timedelta(seconds=21)
    extended = client.extend(topic, "w1", [first], 60_000)
    assert (extended.count, extended.deadlines) == (1, {first.seq: first.deadline})
    assert (first.deadline - before).total_seconds() > 55


def test_an_ack_keeps_results_and_names_the_skipped(client: Client, topic: str) -> None:
    client.put_topic(topic, type="queue")
    client.produce(topic, [Record(1), Record(2)])
    first, second = client.claim(topic, "w1", 5)
    assert client.ack(topic, "w1", [first]).count == 1
    again = client.ack(topic, "w1", [first, second], results=[{"n": 1}, {"n": 2}], result_ttl_ms=60_000)
    assert (again.count, again.skipped, again.repeated) == (1, [first.seq], False)
    kept = JobResult.objects.filter(seq__in=[first.seq, second.seq])
    assert [(result.seq, result.result) for result in kept] == [(second.seq, {"n": 2})]


def test_a_nacked_job_comes_again_with_another_token(client: Client, topic: str) -> None:
    client.put_topic(topic, type="queue")
    client.produce(topic, [Record(1)])
    (third,) = client.claim(topic, "w1")
    assert client.nack(topic, "w1", [third], delay_ms=0).count == 1
    (back,) = client.claim(topic, "w1")
    assert (back.seq, back.deliveries) == (third.seq, 2)
    # The token of the first delivery does not count any more, although the node is the same.
    assert client.extend(topic, "w1", [third], 1000).skipped == [third.seq]
    assert third.lost
    assert client.ack(topic, "w1", [back.seq]).count == 1


def test_records_of_a_log(client: Client, topic: str) -> None:
    written = client.produce(topic, [Record(n, tag=f"t-{n}", node=f"p{n % 2}") for n in range(5)])
    assert written.created
    page = client.read(topic, limit=2)
    assert [(record["data"], record["$tag"]) for record in page.records] == [(0, "t-0"), (1, "t-1")]
    assert not page.caught_up
    rest = client.read(topic, page.next_from_seq, skip_nodes=["p0"])
    assert [record["data"] for record in rest.records] == [3]
    assert rest.caught_up
    began = time.monotonic()
    assert client.read(topic, rest.next_from_seq, wait_ms=300).records == []
    assert time.monotonic() - began >= 0.3
    assert client.delete_records(topic, match="t-1*") == 1
    assert client.delete_records(topic, before_seq=written.seqs[4]) == 3


def test_a_write_with_a_key_of_ones_own(client: Client, topic: str) -> None:
    first = client.produce(topic, [Record(1)], idempotency_key="k", config={"type": "queue"})
    second = client.produce(topic, [Record(1)], idempotency_key="k")
    assert second.deduped
    assert second.seq == first.seq
    assert client.get_topic(topic)["count"] == 1


def test_errors_have_classes(client: Client, topic: str) -> None:
    with pytest.raises(TopicNotFound, match="Create it") as caught:
        client.claim(topic, "w1")
    assert caught.value.detail == {"topic": topic}
    with pytest.raises(TopicNotFound):
        client.produce(topic, [Record(1)], create=False)
    client.put_topic(topic, type="log", cap_records=1, discard="reject")
    with pytest.raises(NotAQueue):
        client.claim(topic, "w1")
    with pytest.raises(TopicConflict):
        client.put_topic(topic, type="queue")
    with pytest.raises(InvalidRequest, match="node"):
        client.claim(topic, "")
    with pytest.raises(TopicFull):
        client.produce(topic, [Record(1), Record(2)])
    client.produce(topic, [Record(1)])
    with pytest.raises(TopicConflict) as conflict:
        client.delete_topic(topic, if_empty=True)
    assert conflict.value.code == "topic_not_empty"
    with pytest.raises(InvalidRequest) as large:
        client.ack(topic, "w1", list(range(1001)))
    assert large.value.code == "batch_too_large"


@pytest.mark.slow
def test_keys(test_database_url: str, topic: str) -> None:
    token = committed_key("read", topics=["topic-"])
    for (server,) in serving(child_environment(test_database_url), api={"ACCESS": "keys"}):
        with Client(server.address) as stranger, pytest.raises(Unauthorized):
            stranger.get_topic(topic)
        with Client(server.address, token) as reader:
            with pytest.raises(TopicNotFound):
                reader.get_topic(topic)
            with pytest.raises(Forbidden, match="write"):
                next(reader.work(topic, "w1"))


def test_the_claim_loop(client: Client, server: Server, topic: str) -> None:
    client.put_topic(topic, type="queue")
    client.produce(topic, [Record(n) for n in range(5)])
    seen = []
    batches = client.claims(topic, "w1", max=2, poll_seconds=0.05)
    for batch in batches:
        seen += [job.data for job in batch]
        client.ack(topic, "w1", batch)
        if seen == [0, 1, 2, 3]:  # an empty queue is waited for
            threading.Timer(0.2, server.write, (topic, 5)).start()
        if 5 in seen:
            break
    batches.close()
    assert seen == [0, 1, 2, 3, 4, 5]


def test_leaving_the_loop_gives_jobs_back(client: Client, server: Server, topic: str) -> None:
    client.put_topic(topic, type="queue")
    client.produce(topic, [Record(1)])
    jobs = client.work(topic, "w1", lease_ms=60_000)
    job = next(jobs)
    jobs.close()
    assert job.lost
    eventually(lambda: server.state(topic)["queue"]["ready"] == 1)


async def test_many_streams_of_one_client(server: Server, topic: str) -> None:
    async with AsyncClient(server.address) as client:
        await client.put_topic(topic, type="queue")
        await client.produce(topic, [Record(n) for n in range(40)])

        async def work(node: str) -> list[int]:
            async with aclosing(client.work(topic, node, max=4)) as jobs:
                found = []
                async for job in jobs:
                    found.append(job.data)
                    await client.ack(topic, node, [job])
                    if len(found) == 4:
                        break
                return found

        found = await asyncio.gather(*(work(f"w{number}") for number in range(10)))
        assert sorted(number for numbers in found for number in numbers) == list(range(40))
