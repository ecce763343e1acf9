"""Trying again, without any IO: the test is the network."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from httpx import Response

from django_leasequeue import client
from django_leasequeue.client import NEVER, ApiError, ConnectionFailed, InvalidRequest, Retry, ServerUnavailable
from django_leasequeue.client.calls import Calls
from django_leasequeue.client.plans import Call, Pause, Request, call, seconds_of

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
        made: Call[Any] = call(steps, self.retry, lambda: self.now)
        try:
            step = next(made)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                    step = made.send(None)
                    continue
                self.requests.append(step)
                answer = self.answers.pop(0)
                step = made.throw(answer) if isinstance(answer, Exception) else made.send(answer)
        except StopIteration as end:
            return end.value


def good(value: Any) -> Response:
    return Response(200, json=value)


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
        (Retry(tries=3), 3, ConnectionFailed("cut")), (NEVER, 1, refused(503, "not_ready")),
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


@pytest.mark.parametrize(
    "answer", [Response(200, content=b"<html>"), Response(404, content=b"<html>"), Response(301, content=b"")]
)
def test_something_else_at_the_address(answer: Response) -> None:
    with pytest.raises(client.BadAnswer, match="where it is mounted"):
        Network(answer).get_topic("t")


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
