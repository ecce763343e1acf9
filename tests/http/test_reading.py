"""Reading without leasing: diff, delete, watch, between two server processes."""

import http.client
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, NewJob
from django_leasequeue.http.auth import split_token
from django_leasequeue.http.topics.watching import Position, decode_id, encode_id
from tests.engine.helpers import open_transaction
from tests.http.servers import Event, EventSource, Server, committed_key, serving
from tests.support.environment import child_environment
from tests.support.threads import ThreadResult
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]


@pytest.fixture
def log(server: Server, topic: str) -> str:
    server.put(f"topics/{topic}", {"type": "log"})
    return topic


def diff(server: Server, topic: str, **body: Any) -> dict[str, Any]:
    return server.post(f"topics/{topic}/diff", body)


def seqs(answer: dict[str, Any]) -> list[int]:
    return [record["$seq"] for record in answer["records"]]


@contextmanager
def uncommitted(topic: str, *data: Any) -> Iterator[tuple[ConnectionExecutor, list[int]]]:
    with open_transaction() as executor:
        answers = executor.run(engine.enqueue(topic, [NewJob(data=item) for item in data], create=False))
        yield executor, [answer.seq for answer in answers]


@pytest.mark.slow
def test_a_page_of_records_says_where_it_ends_and_what_is_left(server: Server, topic: str) -> None:
    records = [{"data": n, "tag": f"t{n}", "node": f"n{n % 2}", "meta": {"n": n}} for n in range(5)]
    written = server.post(f"topics/{topic}", {"records": records}, 201)["seqs"]
    answer = diff(server, topic, limit=3, include_tags=True)
    assert seqs(answer) == written[:3]
    assert answer["records"][0] == {
        "$seq": written[0], "$ts": answer["records"][0]["$ts"], "$tag": "t0", "$node": "n0", "data": 0,
        "meta": {"n": 0},
    }  # fmt: skip
    assert (answer["next_from_seq"], answer["head_seq"]) == (written[2], written[4])
    assert (answer["caught_up"], answer["lag"], answer["tombstone"]) == (False, written[4] - written[2], None)
    rest = diff(server, topic, from_seq=answer["next_from_seq"])
    assert (seqs(rest), rest["next_from_seq"], rest["caught_up"], rest["lag"]) == (written[3:], written[4], True, 0)
    assert diff(server, topic, from_seq=written[4])["records"] == []


def test_a_page_has_tags_on_request_and_meta_by_default(server: Server, topic: str) -> None:
    server.post(f"topics/{topic}", {"records": [{"data": 1, "tag": "a", "meta": {"x": 1}}, {"data": None}]}, 201)
    for wanted, names in (
        ({}, {"meta"}), ({"include_tags": False}, {"meta"}), ({"include_tags": True}, {"$tag", "meta"}),
        ({"include_tags": True, "include_meta": False}, {"$tag"}), ({"include_meta": False}, set()),
    ):  # fmt: skip
        first, null = diff(server, topic, **wanted)["records"]
        assert set(first) == {"$seq", "$ts", "data"} | names, wanted
        assert null["data"] is None


def test_records_of_a_node_are_left_out_but_the_cursor_moves(server: Server, topic: str) -> None:
    records = [{"data": n, "node": f"n{n % 3}"} for n in range(9)] + [{"data": "none"}]
    written = server.post(f"topics/{topic}", {"records": records}, 201)["seqs"]
    answer = diff(server, topic, node="n0")
    assert [record["data"] for record in answer["records"]] == [1, 2, 4, 5, 7, 8, "none"]
    only = diff(server, topic, node=["n0", "n1", "n2"], limit=1)
    assert [record["data"] for record in only["records"]] == ["none"]
    own = diff(server, topic, node=["n0", "n1", "n2"], from_seq=0, limit=256)
    assert (own["next_from_seq"], own["caught_up"]) == (written[-1], True)
    mine = server.post(f"topics/{topic}", {"records": [{"data": "mine", "node": "n0"}]})["last_seq"]
    answer = diff(server, topic, from_seq=written[-1], node="n0")
    assert (answer["records"], answer["next_from_seq"], answer["caught_up"]) == ([], mine, True)


def test_numbers_are_written_as_they_were(server: Server, log: str) -> None:
    numbers = b"[1e300,1.0,-0,12345678901234567890]"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with closing(connection):
        for path, body in (("", b'{"records": [{"data": %b}]}' % numbers), ("/diff", b"{}")):
            connection.request("POST", f"/v0/topics/{log}{path}", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
    assert b'"data":%b' % numbers in text
    with EventSource(server, server.post("watch", {"topics": {log: 0}})["stream_url"]) as stream:
        lines = stream.block() + stream.block() + stream.block()
    assert any(numbers.decode() in line for line in lines), lines


def test_limit_and_wait_of_a_page_are_clamped(server: Server, log: str) -> None:
    server.post(f"topics/{log}?return_seqs=false", {"records": [{"data": n} for n in range(1_010)]})
    assert len(diff(server, log, limit=5_000)["records"]) == 1_000
    assert len(diff(server, log)["records"]) == 256
    assert diff(server, log, wait_ms=30_000, limit=1)["records"]


@pytest.mark.slow
def test_a_page_is_bounded_in_bytes(server: Server, log: str) -> None:
    for _ in range(4):
        server.write(log, *["x" * 1_000_000] * 6)
    first = diff(server, log, limit=1000)
    assert 10 < len(first["records"]) < 20
    assert first["caught_up"] is False
    rest = diff(server, log, limit=1000, from_seq=first["next_from_seq"])
    assert len(first["records"]) + len(rest["records"]) == 24


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_long_poll_wakes_on_an_append(server: Server, other: Server, topic: str, kind: str) -> None:
    server.put(f"topics/{topic}", {"type": kind})
    begin = diff(server, topic)["head_seq"]
    with ThreadResult(lambda: diff(server, topic, from_seq=begin, wait_ms=30_000)) as poll:
        time.sleep(0.3)
        written = other.write(topic, "new")
        assert (seqs(poll.value()), poll.value()["caught_up"]) == (written, True)
    empty = diff(server, topic, from_seq=written[-1], wait_ms=50)
    assert (empty["records"], empty["next_from_seq"]) == ([], written[-1])


def test_a_long_poll_ends_when_its_topic_is_deleted(server: Server, other: Server, log: str) -> None:
    with ThreadResult(lambda: server.refusal("POST", f"topics/{log}/diff", {"wait_ms": 30_000})) as poll:
        time.sleep(0.3)
        other.call("DELETE", f"topics/{log}")
        assert poll.value() == (404, "topic_not_found")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_late_commit_is_never_skipped_and_a_rollback_holds_nobody_up(server: Server, log: str, end: str) -> None:
    first = server.write(log, "first")
    with uncommitted(log, "late") as (executor, late):
        later = server.write(log, "later")
        assert later > late
        waiting = diff(server, log, from_seq=first[-1])
        assert waiting["records"] == []
        assert (waiting["caught_up"], waiting["head_seq"], waiting["next_from_seq"]) == (False, later[-1], first[-1])
        with ThreadResult(lambda: diff(server, log, from_seq=first[-1], wait_ms=30_000)) as poll:
            time.sleep(0.2)
            getattr(executor.connection, end)()
            came = [*(late if end == "commit" else []), *later]
            assert seqs(poll.value()) == came
    assert seqs(diff(server, log)) == first + came


def test_a_reader_beside_writers_sees_every_record_once(server: Server, other: Server, log: str) -> None:
    written: list[int] = []

    def write(number: int) -> None:
        with open_transaction() as executor:
            for turn in range(15):
                answers = executor.run(engine.enqueue(log, [NewJob(data=[number, turn])] * 2, create=False))
                time.sleep(0.002 * (number % 3))
                if turn % 5 == 4:
                    executor.connection.rollback()
                else:
                    executor.connection.commit()
                    written.extend(answer.seq for answer in answers)

    found: list[int] = []
    cursor, turns = 0, 0
    with ThreadPoolExecutor(6) as pool:
        writers = [pool.submit(write, number) for number in range(6)]
        while True:
            done = all(writer.done() for writer in writers)
            answer = diff((server, other)[turns % 2], log, from_seq=cursor, limit=7, wait_ms=50)
            turns += 1
            found += seqs(answer)
            cursor = answer["next_from_seq"]
            if done and answer["caught_up"] and not answer["records"]:
                break
    assert found == sorted(written)


def test_a_tombstone_tells_what_a_cap_removed(server: Server, topic: str) -> None:
    server.put(f"topics/{topic}", {"type": "log", "cap_records": 3})
    written = server.write(topic, *range(8))
    answer = diff(server, topic)
    assert answer["tombstone"] == {"gap_from": written[0], "gap_to": written[4], "reason": "cap", "missed_estimate": 5}
    assert seqs(answer) == written[5:]
    assert diff(server, topic, from_seq=answer["next_from_seq"])["tombstone"] is None
    middle = diff(server, topic, from_seq=written[2])["tombstone"]
    assert (middle["gap_from"], middle["gap_to"], middle["missed_estimate"]) == (written[3], written[4], 2)
    assert diff(server, topic, from_seq=written[4])["tombstone"] is None


@pytest.mark.slow
def test_a_tombstone_tells_what_expired(server: Server, topic: str) -> None:
    server.put(f"topics/{topic}", {"type": "log", "ttl_ms": 500})
    written = server.write(topic, 1, 2)
    eventually(lambda: not diff(server, topic)["records"], "they expire")
    answer = diff(server, topic)
    assert answer["tombstone"] == {"gap_from": written[0], "gap_to": written[1], "reason": "ttl", "missed_estimate": 2}
    assert (answer["next_from_seq"], answer["caught_up"]) == (written[1], True)


def write_tagged(server: Server, topic: str, *tags: str | None) -> list[int]:
    records = [{"data": n} | ({"tag": tag} if tag else {}) for n, tag in enumerate(tags)]
    found: list[int] = server.post(f"topics/{topic}", {"records": records})["seqs"]
    return found


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_records_are_deleted_by_tag_and_by_number(server: Server, topic: str, kind: str) -> None:
    server.put(f"topics/{topic}", {"type": kind})
    written = write_tagged(server, topic, "build-1", "build-2", "builds", "ship", None, "build-", "ship")
    delete = f"topics/{topic}/delete"
    by_tag = server.post(delete, {"match": "ship"})
    assert (by_tag["topic"], by_tag["deleted"], by_tag["count"]) == (topic, 2, 5)
    assert seqs(diff(server, topic)) == [written[0], written[1], written[2], written[4], written[5]]
    assert server.post(delete, {"match": "build-*", "before_seq": written[1]})["deleted"] == 1  # both narrow
    assert server.post(delete, {"match": "build-*"})["deleted"] == 2
    left = diff(server, topic)  # what was deleted is silent
    assert (seqs(left), left["tombstone"]) == ([written[2], written[4]], None)
    assert server.post(delete, {"match": "nothing"})["deleted"] == 0
    assert server.post(delete, {"before_seq": written[4]})["deleted"] == 1
    assert server.post(delete, {"before_seq": written[-1] + 1})["deleted"] == 1
    assert server.state(topic)["count"] == 0
    write_tagged(server, topic, "x", None)
    assert server.post(delete, {"match": "*"})["deleted"] == 1  # every tag, but a tag


def watch(server: Server, topics: dict[str, int], **options: Any) -> EventSource:
    answer = server.post("watch", {"topics": topics})
    stream = EventSource(server, answer["stream_url"], **options)
    assert stream.status == 200
    return stream


def until(stream: EventSource, name: str) -> list[Event]:
    found = [stream.event()]
    while found[-1].name != name:
        found.append(stream.event())
    return found


def test_a_watch_sends_records_as_they_are_written(server: Server, other: Server, topic: str) -> None:
    body = {"records": [{"data": 1, "tag": "a", "node": "p", "meta": {"x": 1}}, {"data": None}]}
    written = server.post(f"topics/{topic}", body, 201)["seqs"]
    with watch(server, {topic: 0}) as stream:
        assert (stream.headers["content-type"], stream.headers["cache-control"]) == ("text/event-stream", "no-store")
        first, second, caught_up = stream.events(3)
        assert (stream.retry, stream.comments) == (2000, ["hb"])
        assert (first.name, first["topic"], first["$seq"], first["$tag"]) == ("record", topic, written[0], "a")
        assert (first["data"], first["$node"], first["meta"]) == (1, "p", {"x": 1})
        assert set(second) == {"topic", "$seq", "$ts", "data"}
        place = {"topic": topic, "head_seq": written[1], "next_from_seq": written[1]}
        assert (caught_up.name, dict(caught_up)) == ("caught-up", place)
        assert all(event.id for event in (first, second, caught_up))
        later = other.write(topic, "later")
        record, again = stream.events(2)
        assert (record["$seq"], again.name) == (later[0], "caught-up")
        stream.silence(0.2)


def test_a_watch_covers_several_logs_and_queues(server: Server, other: Server, topic: str) -> None:
    server.put(f"topics/{topic}.q", {"type": "queue"})
    old = server.write(f"{topic}.a", "old", "new")
    server.write(f"{topic}.b", 1)
    with watch(server, {f"{topic}.a": old[0], f"{topic}.b": 0, f"{topic}.q": 0}) as stream:
        begin = stream.events(5)
        assert sorted(event.name for event in begin) == ["caught-up"] * 3 + ["record"] * 2
        (job,) = other.write(f"{topic}.q", "job")
        record, _ = stream.events(2)
        assert (record["topic"], record["$seq"]) == (f"{topic}.q", job)
        assert server.state(f"{topic}.q")["queue"]["ready"] == 1


def test_a_watch_resumes_without_repeats(server: Server, other: Server, topic: str) -> None:
    names = (f"{topic}.a", f"{topic}.b")
    for name in names:
        server.write(name, *range(3))
    answer = server.post("watch", {"topics": dict.fromkeys(names, 0)})
    seen: list[int] = []
    last = None
    for turn in range(20):
        headers = {} if last is None else {"last-event-id": last}
        with EventSource((server, other)[turn % 2], answer["stream_url"], headers=headers) as stream:
            event = stream.event()
            last = event.id or ""
            if event.name == "record":
                seen.append(event["$seq"])
            elif len(seen) >= 8:
                break
            elif turn == 7:
                server.write(names[1], "late", "later")
    assert len(seen) == len(set(seen))
    with EventSource(server, answer["stream_url"], headers={"last-event-id": last or ""}) as stream:
        names_left = {stream.event().name for _ in range(2)}
    assert names_left <= {"caught-up", "record"}


def test_a_watch_skips_no_late_commit(server: Server, log: str) -> None:
    with watch(server, {log: 0}) as stream:
        until(stream, "caught-up")
        with uncommitted(log, "late") as (executor, late):
            later = server.write(log, "later")
            stream.silence(0.3)
            executor.connection.commit()
            assert [event["$seq"] for event in stream.events(2)] == late + later


def test_a_watch_sends_tombstones(server: Server, topic: str) -> None:
    server.put(f"topics/{topic}", {"type": "log", "cap_records": 2})
    written = server.write(topic, *range(5))
    with watch(server, {topic: 0}) as stream:
        tombstone, *records = until(stream, "caught-up")
        assert (tombstone.name, tombstone["gap_from"], tombstone["gap_to"]) == ("tombstone", written[0], written[2])
        assert (tombstone["topic"], tombstone["reason"], tombstone["missed_estimate"]) == (topic, "cap", 3)
        assert [event["$seq"] for event in records[:-1]] == written[3:]
        assert tombstone.id
    with watch(server, {topic: 0}, headers={"last-event-id": tombstone.id or ""}) as stream:
        assert [event["$seq"] for event in until(stream, "caught-up")[:-1]] == written[3:]


def test_a_watch_tells_of_a_deleted_topic(server: Server, other: Server, topic: str) -> None:
    names = (f"{topic}.a", f"{topic}.b")
    for name in names:
        server.write(name, 1)
    with watch(server, dict.fromkeys(names, 0)) as stream:
        stream.events(4)
        other.call("DELETE", f"topics/{names[0]}")
        gone = stream.event()
        assert (gone.name, gone["topic"]) == ("topic-deleted", names[0])
        other.write(names[0], "made anew: another topic")
        stream.silence(0.2)
        other.write(names[1], 2)
        assert stream.event()["topic"] == names[1]
        stream.event()
        other.call("DELETE", f"topics/{names[1]}")
        last = stream.event()
        assert (last.name, last["topic"]) == ("topic-deleted", names[1])
        stream.end()


def test_a_bad_watch_is_refused(server: Server, log: str) -> None:
    for topics in ({}, [], {log: -1}, {log: "0"}, {"-x": 0}, {f"t{n}": 0 for n in range(101)}, None):
        assert server.refusal("POST", "watch", {"topics": topics}) == (400, "invalid_request")
    status, answer = server.call("POST", "watch", {"topics": {log: 0, f"{log}.none": 0}})
    assert (status, answer["error"]["code"]) == (404, "topic_not_found")
    assert answer["error"]["detail"] == {"topic": f"{log}.none"}
    wid = server.post("watch", {"topics": {log: 0}})["wid"]
    for name, accept, refusal in (
        ("nonsense", "text/event-stream", (404, "not_found")), (f"{wid}x", "text/event-stream", (404, "not_found")),
        (wid, "application/json", (406, "not_acceptable")),
    ):  # fmt: skip
        with EventSource(server, f"watch/{name}", accept=accept) as stream:
            assert stream.refusal == refusal


def test_the_id_of_a_frame_holds_positions() -> None:
    topics = {"b": 0, "a": 5, "c": 7}
    positions = {"b": Position(123456789), "a": Position(2**62, 2**53 - 1), "c": Position(None)}
    assert decode_id(encode_id(positions), topics) == positions
    for wrong in (
        "", "x", "1.2", "1.2.3.4", "1.2.ü", "1.2." + "z" * 20, "1..2", "1.2.3_", "1.2.3w5e11264sgsf",
        "1.2.3_zzzzzzzzzzz",
    ):  # fmt: skip
        assert decode_id(wrong, topics) == {"a": Position(5), "b": Position(0), "c": Position(7)}


@pytest.mark.slow
def test_a_stream_takes_a_token_in_header_or_query(test_database_url: str, server: Server, topic: str) -> None:
    server.put(f"topics/{topic}", {"type": "queue"})
    keys = {
        "all": committed_key("read", "write"),
        "reader": committed_key("read"),
        "elsewhere": committed_key("read", "write", topics=["elsewhere."]),
    }
    for (guarded,) in serving(child_environment(test_database_url), api={"ACCESS": "keys"}):
        work = f"topics/{topic}/work?node=w"
        answers = {
            "nobody": ({}, ""), "header": ({"authorization": f"Bearer {keys['all']}"}, ""),
            "query": ({}, f"&token={keys['all']}"), "reader": ({"authorization": f"Bearer {keys['reader']}"}, ""),
            "elsewhere": ({"authorization": f"Bearer {keys['elsewhere']}"}, ""),
            "wrong": ({}, "&token=lqk_0123456789ab_wrong"),
        }  # fmt: skip
        found = {}
        for name, (headers, query) in answers.items():
            with EventSource(guarded, work + query, headers=headers) as stream:
                found[name] = stream.status
        assert found == {"nobody": 401, "header": 200, "query": 200, "reader": 403, "elsewhere": 403, "wrong": 401}
        headers = {"authorization": f"Bearer {keys['reader']}"}
        status, answer = guarded.call("POST", "watch", {"topics": {topic: 0}}, headers=headers)
        assert status == 200
        with EventSource(guarded, f"{answer['stream_url']}?token={keys['reader']}") as stream:
            assert stream.status == 200
            stream.event()
        with EventSource(guarded, f"{answer['stream_url']}?token={keys['elsewhere']}") as stream:
            assert stream.status == 403
        assert guarded.call("POST", f"watch?token={keys['reader']}", {"topics": {topic: 0}})[0] == 401
        text = guarded.read_log()
        assert "token=[redacted]" in text
        for token in keys.values():
            assert (split_token(token) or ("", token))[1] not in text


def test_a_position_that_the_server_may_have_lost_is_refused_or_reset(server: Server, log: str) -> None:
    [seq] = server.write(log, 1)
    page = diff(server, log)
    assert (page["reset_to"], diff(server, log, from_seq=seq, timeline=page["timeline"])["records"]) == (None, [])
    for lost in ({"from_seq": seq + 10**6}, {"from_seq": seq, "timeline": page["timeline"] + 1}):
        status, answer = server.call("POST", f"topics/{log}/diff", lost)
        assert (status, answer["error"]["code"]) == (409, "log_truncated")
        assert answer["error"]["detail"] == {"topic": log, "next_from_seq": 0, "timeline": page["timeline"]}
        page = diff(server, log, **lost, reset=True, wait_ms=30_000)
        assert (page["reset_to"], seqs(page)) == (0, [seq])


@pytest.mark.parametrize("reset", [False, True])
def test_a_watch_whose_position_the_server_may_have_lost(server: Server, log: str, reset: bool) -> None:
    [seq] = server.write(log, 1)
    wid = server.post("watch", {"topics": {log: 0}, "reset": reset})["wid"]
    lost = encode_id({log: Position(seq, 2)})
    with EventSource(server, f"watch/{wid}", headers={"last-event-id": lost}) as stream:
        first = stream.event()
        if not reset:
            assert (first.name, first["code"]) == ("error", 409)
            return
        assert (first.name, dict(first)) == ("reset", {"topic": log, "next_from_seq": 0, "timeline": 1})
        assert stream.event()["$seq"] == seq
