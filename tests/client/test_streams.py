"""Event streams and the loops, without any IO."""

import json
from typing import Any

import pytest
from httpx import Response

from django_leasequeue.client import ClientJob, ConnectionFailed, Forbidden, Retry
from django_leasequeue.client.plans import (
    MAX_EVENT,
    Close,
    Event,
    EventReader,
    Give,
    Open,
    Pause,
    Read,
    Request,
    Source,
    claims,
    work,
)

OPENING = b"retry: 2000\n\n: hb\n\n"
OPEN = Response(200, content=b"")


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


class Server:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.step: Any = next(source)

    def answer(self, expected: type[Any], value: Any = None) -> Any:
        step = self.step
        assert isinstance(step, expected), step
        self.step = self.source.throw(value) if isinstance(value, Exception) else self.source.send(value)
        return step


def test_work_opens_again_and_the_jobs_of_the_old_connection_are_lost() -> None:
    server = Server(work("t", "w1", max=3, lease_ms=500))
    request = server.answer(Open, OPEN).request
    assert (request.path, request.query) == ("topics/t/work", {"node": "w1", "max": "3", "lease_ms": "500"})
    assert request.headers == {"accept": "text/event-stream"}
    server.answer(Read, OPENING + job_frame(1))
    first: ClientJob = server.answer(Give).item
    assert (first.seq, first.data, first.deliveries, first.lost) == (1, {"n": 1}, 1, False)
    called: list[int] = []
    first.when_stopped(lambda: called.append(1))
    server.answer(Read, ConnectionFailed("cut"))
    assert first.lost
    assert called == [1]
    server.answer(Close)
    assert 0 <= server.answer(Pause).seconds <= 2
    server.answer(Open, OPEN)
    server.answer(Read, job_frame(1))
    again: ClientJob = server.answer(Give).item
    assert not again.lost
    server.source.close()  # nobody iterates any more
    assert again.lost


def test_work_waits_longer_each_time_and_as_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 1.0)
    server = Server(work("t", "w1"))
    pauses = []
    for _ in range(9):
        server.answer(Open, ConnectionFailed("refused"))
        server.answer(Close)
        pauses.append(server.answer(Pause).seconds)
    assert pauses == [0.5, 1, 2, 2, 2, 2, 2, 2, 2]
    body = json.dumps({"error": {"code": "not_ready", "message": "No."}}).encode()
    server.answer(Open, Response(503, headers={"retry-after": "60"}, content=body))
    server.answer(Close)
    assert server.answer(Pause).seconds == 62


def test_what_fails_again_and_again_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "django_leasequeue.client")
    stream, polling = Server(work("t", "w1")), Server(claims("t", "w1", Retry(tries=1)))
    for _ in range(5):
        stream.answer(Open, ConnectionFailed("refused"))
        stream.answer(Close)
        stream.answer(Pause)
        polling.answer(Request, ConnectionFailed("refused"))
        polling.answer(Pause)
    stream.answer(Open, OPEN)
    polling.answer(Request, Response(200, content=b'{"claimed": []}'))
    assert [record.getMessage() for record in caplog.records] == [
        "The stream of 't' ended, connecting again: refused", "Cannot claim from 't', trying again: refused",
        "The stream of 't' is open again", "Claiming from 't' again",
    ]  # fmt: skip


def test_work_survives_a_stream_that_it_cannot_read_and_raises_what_the_server_refuses_for_good() -> None:
    server = Server(work("t", "w1"))
    revoked = b'event: error\ndata: {"code": 401, "message": "This key was revoked."}\n\n'
    for unreadable in (b"event: job\ndata: {no json\n\n", OPENING + revoked):
        server.answer(Open, OPEN)
        server.answer(Read, unreadable)
        server.answer(Close)
        server.answer(Pause)
        assert isinstance(server.step, Open)
    with pytest.raises(Forbidden):
        server.answer(Open, Response(403, json={"error": {"code": "forbidden", "message": "No."}}))


def test_claims_look_less_often_at_an_empty_queue() -> None:
    server = Server(claims("t", "w1", Retry(tries=1), max=4, poll_seconds=0.3))

    def answered(*seqs: int) -> Response:
        return Response(200, content=json.dumps({"claimed": [item(seq) for seq in seqs]}).encode())

    pauses = []
    for _ in range(5):
        assert server.answer(Request, answered()).body == {"node": "w1", "max": 4}
        pauses.append(server.answer(Pause).seconds)
    for pause, about in zip(pauses, [0.05, 0.1, 0.2, 0.3, 0.3], strict=True):
        assert 0.75 * about <= pause <= 1.25 * about
    server.answer(Request, answered(1, 2))
    assert [job.seq for job in server.answer(Give).item] == [1, 2]
    server.answer(Request, ConnectionFailed("cut"))  # no pause after jobs; one after a failure
    server.answer(Pause)
    assert isinstance(server.step, Request)
