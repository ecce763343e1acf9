"""Event streams and keys: a stream ends soon after its key lost what it streams, and one key cannot take all places."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from django_leasequeue.engine.pool import connect
from django_leasequeue.models import LiveJob
from tests.http.servers import EventSource, Server, committed_key, serving
from tests.support.environment import child_environment
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]

#: What happens to a key, and what its streams are told.
LOSSES = {
    "revoked": ("revoked_at = now()", 401), "expired": ("expires_at = now()", 401),
    "given a new secret": ("prefix = 'other' || id, digest = repeat('0', 64)", 401),
    "limited to other topics": ("topics = '{other-}'", 403),
    "limited to other scopes": ("scopes = '{write,delete}'", 403), "of another project": ("project = 'other'", 403),
}  # fmt: skip


@pytest.fixture(scope="module")
def closed(test_database_url: str) -> Iterator[Server]:
    """A server that wants keys and looks at those of its streams often."""
    for (server,) in serving(child_environment(test_database_url), api={"ACCESS": "keys", "RECHECK_SECONDS": 0.2}):
        yield server


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def change(token: str, what: str) -> None:
    prefix = token.split("_")[1]
    with connect("default") as connection:
        assert connection.execute(f"UPDATE leasequeue_apikey SET {what} WHERE prefix = %s", [prefix]).rowcount == 1


@pytest.fixture
def boss() -> dict[str, str]:
    return bearer(committed_key("read", "write", "delete", "admin"))


@pytest.fixture
def queue(closed: Server, boss: dict[str, str], topic: str) -> str:
    assert closed.call("PUT", f"topics/{topic}", {"type": "queue"}, headers=boss)[0] == 201
    return topic


@pytest.mark.parametrize("loss", LOSSES)
def test_streams_end_when_a_key_loses_the_topic(closed: Server, boss: dict[str, str], queue: str, loss: str) -> None:
    what, code = LOSSES[loss]
    token = committed_key("read", "write")
    status, watch = closed.call("POST", "watch", {"topics": {queue: 0}}, headers=bearer(token))
    assert status == 200
    assert closed.call("POST", f"topics/{queue}", {"records": [{"data": 1}]}, headers=boss)[0] == 200
    with (
        EventSource(closed, f"topics/{queue}/work?node=w&max=5", headers=bearer(token)) as work,
        EventSource(closed, watch["stream_url"], headers=bearer(token)) as records,
    ):
        assert work.event().name == "job"
        assert [event.name for event in records.events(2)] == ["record", "caught-up"]
        change(token, what)
        for stream in (work, records):
            error = stream.event()
            assert (error.name, error["code"]) == ("error", code)
            stream.end()
    eventually(lambda: not LiveJob.objects.filter(node="w", queue__name=queue).exists())  # it is given back
    assert closed.call("POST", f"topics/{queue}", {"records": [{"data": 2}]}, headers=boss)[0] == 200
    claimed = closed.call("POST", f"topics/{queue}/claim", {"node": "x", "max": 5}, headers=boss)[1]["claimed"]
    assert [job["data"] for job in claimed] == [1, 2]


@pytest.mark.slow
def test_streams_of_a_key_that_keeps_its_rights_go_on(closed: Server, boss: dict[str, str], queue: str) -> None:
    token = committed_key("read", "write")
    with EventSource(closed, f"topics/{queue}/work?node=w", headers=bearer(token)) as work:
        work.block()
        change(token, f"topics = '{{{queue}}}', rate_per_second = 5")
        work.silence(1.0)  # it was looked at several times since
        closed.call("POST", f"topics/{queue}", {"records": [{"data": 1}]}, headers=boss)
        assert work.event().name == "job"


@pytest.mark.slow
def test_one_key_cannot_take_all_places(test_database_url: str, queue: str) -> None:
    keys = [committed_key("read", "write") for _ in range(4)]
    streams: list[EventSource] = []
    with ExitStack() as stack:
        api = {"ACCESS": "keys", "MAX_STREAMS": 4}
        server = stack.enter_context(Server(child_environment(test_database_url), api=api))

        def opens(key: str) -> bool:
            stream = stack.enter_context(EventSource(server, f"topics/{queue}/work?node=w", headers=bearer(key)))
            if stream.status == 200:
                stream.block()  # it has its place from here on
                streams.append(stream)
                return True
            error = stream.json()["error"]
            assert (stream.status, error["code"], "MAX_STREAMS" in error["message"]) == (503, "not_ready", True)
            return False

        assert [opens(keys[0]) for _ in range(3)] == [True, True, False]
        assert [opens(keys[1]) for _ in range(2)] == [True, False]
        assert [opens(keys[2]) for _ in range(2)] == [True, False]
        assert not opens(keys[3])
        streams[0].close()
        eventually(lambda: opens(keys[3]), "the place is free")
