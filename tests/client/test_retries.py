"""Trying again, event streams and the loops, without any IO: the test is the network."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from httpx import Response

from django_leasequeue import client
from django_leasequeue.client import ApiError, ConnectionFailed, InvalidRequest, Retry, ServerUnavailable
from django_leasequeue.client.calls import Calls
from django_leasequeue.client.plans import (
    MAX_EVENT,
    Either,
    Event,
    EventReader,
    Give,
    Request,
    call,
    claims,
    seconds_of,
    work,
)

WRITTEN = {"topic": "t", "seqs": [7], "count": 1, "created": False, "deduped": False}


class Network(Calls):
    """Carries out a call: gives the prepared answers, notes requests and pauses, moves the clock by the pauses."""

    def __init__(self, *answers: Response | Exception) -> None:
        self.answers = list(answers)
        self.retry = Retry()
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.now = 0.0

    def _run(self, steps: Any, /) -> Any:
        made = call(iter(steps), self.retry, lambda: self.now)
        try:
            step = next(made)
            while True:
                if isinstance(step, Either):
                    self.pauses += step.args
                    self.now += step.args[0]
                    step = made.send(None)
                    continue
                self.requests.append(step)
                answer = self.answers.pop(0)
                step = made.throw(answer) if isinstance(answer, Exception) else made.send(answer)
        except StopIteration as end:
            return end.value


def good(value: Any) -> Response:
    return Response(200, json={**value, "performance": {}})


def refused(status: int, code: str, **headers: str) -> Response:
    body = {"error": {"code": code, "message": "No.", "detail": {"topic": "t"}}}
    return Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()}, json=body)


def test_what_passes_is_tried_again_and_written_once() -> None:
    passing = (ConnectionFailed("cut"), refused(503, "not_ready"), Response(502, content=b"<html>"))
    network = Network(*passing, good(WRITTEN), good(WRITTEN))
    assert network.produce("t", [{"data": 1}]).seq == 7
    assert len(network.requests) == 4
    assert len({request.body["idempotency_key"] for request in network.requests}) == 1
    assert len(network.pauses) == 3
    assert all(least <= pause <= 2 * least for pause, least in zip(network.pauses, (0.05, 0.1, 0.2), strict=True))
    assert Retry(longest=4.0).wait(1000) <= 4.0
    network.produce("t", [{"data": 1}])  # another write has another key
    assert len({request.body["idempotency_key"] for request in network.requests}) == 2


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured_unless_the_wait_is_too_long(status: int) -> None:
    network = Network(refused(status, "throttled", retry_after="3"), good({"deleted": 2}))
    assert network.delete_records("t", match="a") == 2
    assert 3 <= network.pauses[0] <= 3.1
    network = Network(refused(429, "throttled", retry_after="120"))
    with pytest.raises(client.Throttled) as caught:
        network.get_topic("t")
    assert (caught.value.retry_after, network.pauses) == (120, [])


def test_retry_after_as_a_date() -> None:
    at = datetime.now(UTC) + timedelta(seconds=100)
    assert 95 < seconds_of(format_datetime(at, usegmt=True)) <= 100
    past = format_datetime(at - timedelta(hours=1), usegmt=True)
    assert [seconds_of(value) for value in ("soon", None, past)] == [None, None, 0]


def test_tries_are_bounded() -> None:
    for retry, tries, failure in (
        (Retry(tries=3), 3, ConnectionFailed("cut")), (client.NEVER, 1, refused(503, "not_ready")),
    ):  # fmt: skip
        network = Network(*[failure] * tries)
        network.retry = retry
        with pytest.raises(ConnectionFailed if tries == 3 else ServerUnavailable):
            network.get_topic("t")
        assert len(network.requests) == tries


@pytest.mark.parametrize(("status", "code", "kind"), [
    (400, "batch_too_large", InvalidRequest), (401, "unauthorized", client.Unauthorized),
    (403, "forbidden", client.Forbidden), (404, "topic_not_found", client.TopicNotFound),
    (404, "not_found", ApiError), (409, "not_a_queue", client.NotAQueue),
    (409, "topic_not_empty", client.TopicConflict), (413, "payload_too_large", InvalidRequest),
    (422, "topic_full", client.TopicFull), (500, "internal", ServerUnavailable),
])  # fmt: skip
def test_what_does_not_pass_is_an_error_at_once(status: int, code: str, kind: type[ApiError]) -> None:
    network = Network(refused(status, code))
    with pytest.raises(kind) as caught:
        network.get_topic("t")
    assert (caught.value.status, caught.value.code, caught.value.message) == (status, code, "No.")
    assert caught.value.detail == {"topic": "t"}
    assert type(caught.value) is kind


@pytest.mark.parametrize("answer", [
    Response(200, content=b"<html>"), Response(200, json={"status": "ok"}), Response(404, content=b"<html>"),
    Response(301, content=b""),
])  # fmt: skip
def test_something_else_at_the_address(answer: Response) -> None:
    with pytest.raises(client.BadAnswer, match="URL of the API"):
        Network(answer).get_topic("t")
    with pytest.raises(client.BadAnswer, match="URL of the API"):
        Server(work(Stream(), "t", "w1")).answer(Request, answer)


def test_a_settle_call_tells_when_its_first_answer_was_lost() -> None:
    answer = good({"acked": 0, "skipped": [5]})
    network = Network(ConnectionFailed("cut"), answer)
    settled = network.ack("t", "w", [5])
    assert (settled.count, settled.skipped, settled.repeated) == (0, [5], True)
    # Throttled is refused: nothing was done.
    network = Network(refused(429, "throttled"), answer)
    assert not network.ack("t", "w", [5]).repeated
    # A topic that is gone at the second try was deleted by the first.
    network = Network(ConnectionFailed("cut"), good({"deleted": False}))
    assert network.delete_topic("t") is True


def test_names_are_quoted_nothing_to_settle_asks_nobody_and_all_pages_are_listed() -> None:
    network = Network(good({}))
    assert network.ack("t", "w", []).count == 0
    assert network.requests == []
    network.get_topic("a/b c")
    assert network.requests[0].path == "topics/a%2Fb%20c"
    pages = [{"topics": [{"topic": "a"}], "next_cursor": "c1"}, {"topics": [{"topic": "b"}]}]
    network = Network(*map(good, pages))
    assert network.list_topics("x") == ["a", "b"]
    assert network.requests[1].query == {"prefix": "x", "page_size": "1000", "cursor": "c1"}


OPENING = b"retry: 2000\n\n: hb\n\n"
OPEN = Response(200, headers={"content-type": "text/event-stream"})


def item(seq: int) -> dict[str, Any]:
    return {"$seq": seq, "lease_id": "lease_1", "deadline": 1000, "$ts": 0, "deliveries": 1, "data": {"n": seq}}


def job_frame(seq: int) -> bytes:
    return f"id: {seq}\nevent: job\ndata: {json.dumps({'topic': 't', **item(seq)})}\n\n".encode()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_come_whole_however_they_are_cut(end: bytes, size: int) -> None:
    text = 'retry: 50\n\n: hb\n\nevent: job\nid: 5\ndata: {\ndata:  "é"}\nother: x\n\ndata:y\n\nevent: none\n\n'
    raw = text.encode().replace(b"\n", end)
    reader = EventReader()
    found = [event for start in range(0, len(raw), size) for event in reader.feed(raw[start : start + size])]
    # What ends with CR is complete with the next byte: it may be the first half of CR LF.
    found += reader.feed(b"\n")
    assert found == [Event("job", '{\n "é"}', "5"), Event("message", "y", "5")]
    assert reader.retry == 50


def test_an_event_without_end_is_refused() -> None:
    reader = EventReader()
    with pytest.raises(ValueError, match="longer"):
        for _ in range(100):
            list(reader.feed(b"data: " + b"x" * (MAX_EVENT // 20) + b"\n"))


class Stream:
    read, close = bytes, str

    def open(self, request: Request) -> Any:
        return (yield request)


class Server:
    def __init__(self, source: Any) -> None:
        self.source = source
        self.step: Any = next(source)

    def answer(self, expected: type[Any], value: Any = None) -> Any:
        step = self.step
        assert isinstance(step, expected), step
        self.step = self.source.throw(value) if isinstance(value, Exception) else self.source.send(value)
        return step


def test_work_opens_again_and_the_jobs_of_the_old_connection_are_lost() -> None:
    server = Server(work(Stream(), "t", "w1", max=3, lease_ms=500))
    request = server.answer(Request, OPEN)
    assert (request.path, request.query) == ("topics/t/work", {"node": "w1", "max": "3", "lease_ms": "500"})
    assert request.headers == {"accept": "text/event-stream"}
    server.answer(bytes, OPENING + job_frame(1))
    first: client.ClientJob = server.answer(Give).item
    assert (first.seq, first.data, first.deliveries, first.lost) == (1, {"n": 1}, 1, False)
    called: list[int] = []
    first.when_stopped(lambda: called.append(1))
    server.answer(bytes, ConnectionFailed("cut"))
    assert first.lost
    assert called == [1]
    server.answer(str)
    assert 0 <= server.answer(Either).args[0] <= 2
    server.answer(Request, OPEN)
    server.answer(bytes, job_frame(1))
    again: client.ClientJob = server.answer(Give).item
    assert not again.lost
    server.source.close()  # nobody iterates any more
    assert again.lost


def test_work_waits_longer_each_time_and_as_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 1.0)
    server = Server(work(Stream(), "t", "w1"))
    pauses = []
    for _ in range(9):
        server.answer(Request, ConnectionFailed("refused"))
        server.answer(str)
        pauses.append(server.answer(Either).args[0])
    assert pauses == [0.5, 1, 2, 2, 2, 2, 2, 2, 2]
    body = json.dumps({"error": {"code": "not_ready", "message": "No."}}).encode()
    server.answer(Request, Response(503, headers={"retry-after": "60"}, content=body))
    server.answer(str)
    assert server.answer(Either).args[0] == 62


def test_what_fails_again_and_again_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "django_leasequeue.client")
    stream, polling = Server(work(Stream(), "t", "w1")), Server(claims("t", "w1", Retry(tries=1)))
    for _ in range(5):
        stream.answer(Request, ConnectionFailed("refused"))
        stream.answer(str)
        stream.answer(Either)
        polling.answer(Request, ConnectionFailed("refused"))
        polling.answer(Either)
    stream.answer(Request, OPEN)
    polling.answer(Request, good({"claimed": []}))
    assert [record.getMessage() for record in caplog.records] == [
        "The stream of 't' ended, connecting again: refused", "Cannot claim from 't', trying again: refused",
        "The stream of 't' is open again", "Claiming from 't' again",
    ]  # fmt: skip


def test_work_survives_a_stream_that_it_cannot_read_and_raises_what_the_server_refuses_for_good() -> None:
    server = Server(work(Stream(), "t", "w1"))
    revoked = b'event: error\ndata: {"code": 401, "message": "This key was revoked."}\n\n'
    for unreadable in (b"event: job\ndata: {no json\n\n", OPENING + revoked):
        server.answer(Request, OPEN)
        server.answer(bytes, unreadable)
        server.answer(str)
        server.answer(Either)
        assert isinstance(server.step, Request)
    with pytest.raises(client.Forbidden):
        server.answer(Request, Response(403, json={"error": {"code": "forbidden", "message": "No."}}))


def test_claims_look_less_often_at_an_empty_queue() -> None:
    server = Server(claims("t", "w1", Retry(tries=1), max=4, poll_seconds=0.3))

    def answered(*seqs: int) -> Response:
        return good({"claimed": [item(seq) for seq in seqs]})

    pauses = []
    for _ in range(5):
        assert server.answer(Request, answered()).body == {"node": "w1", "max": 4}
        pauses.append(server.answer(Either).args[0])
    for pause, about in zip(pauses, [0.05, 0.1, 0.2, 0.3, 0.3], strict=True):
        assert 0.75 * about <= pause <= 1.25 * about
    server.answer(Request, answered(1, 2))
    assert [job.seq for job in server.answer(Give).item] == [1, 2]
    server.answer(Request, ConnectionFailed("cut"))  # no pause after jobs; one after a failure
    server.answer(Either)
    assert isinstance(server.step, Request)


def test_what_a_server_says_is_one_line_of_a_log() -> None:
    answer = Response(
        400, json={"error": {"code": "invalid_request", "message": "No.\r\n2026-01-01 CRITICAL all is lost"}}
    )
    with pytest.raises(InvalidRequest) as refused:
        Network(answer).get_topic("t")
    assert str(refused.value) == "400 invalid_request: No. 2026-01-01 CRITICAL all is lost"
