"""Every door while the database goes away and comes back: 503 with Retry-After, never 500, and then as before."""

import http.client
import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg
import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from django_leasequeue.http.access import ALL_SCOPES
from tests.conftest import HOME
from tests.http.servers import EventSource, Server, insert_key
from tests.support.environment import child_environment
from tests.support.faults import Faulty, alias, faulty
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

CLIENT = "3381af92-2b9e-11e3-b191-71861300734c"
#: Seconds that a statement may take here.
PATIENCE = 3


class Sent(NamedTuple):
    """A request, and whether its answer needs the database at all."""

    method: str
    path: str
    body: Any = None
    database: bool = True


#: (the address's name, method) -> the body; of what is not here the body is empty.
BODIES: dict[tuple[str | None, str], Any] = {
    ("topic", "POST"): {"records": [{"data": 1}]}, ("topic", "PUT"): {}, ("claim", "POST"): {"node": "w", "max": 1},
    ("ack", "POST"): {"node": "w", "seqs": [1]}, ("nack", "POST"): {"node": "w", "seqs": [1]},
    ("extend", "POST"): {"node": "w", "seqs": [1], "lease_ms": 1_000}, ("diff", "POST"): {"from_seq": 0},
    ("delete", "POST"): {"seqs": [1]}, ("watch", "POST"): {"topics": {"jobs": 0}}, ("metadata", "PUT"): {"a": 1},
    ("messages", "POST"): [{"ttl": 86_400, "body": 1}], ("claims", "POST"): {"ttl": 300, "grace": 60},
    ("step", "PUT"): {"node": "w", "lease_id": "lease_1", "value": 1}, ("event", "POST"): {},
    ("suspend", "POST"): {"node": "w", "lease_id": "lease_1", "event": "e"},
    ("claim", "PATCH"): {"ttl": 300},
}  # fmt: skip
#: A workflow that is not there.
WORKFLOW = "0e2b7d0c-5a0c-4a86-9d1b-6f2f5f3a1c11"
#: What answers without the database.
WITHOUT = {("home", "GET"), ("home", "HEAD"), (None, "GET")}


def endpoints(resolver: URLResolver | None = None, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Yield the addresses of all our views in the test project, the admin's left out."""
    for pattern in (resolver or get_resolver("testproject.urls")).url_patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            if pattern.app_name != "admin":
                yield from endpoints(pattern, path)
        elif pattern.callback.__module__.startswith("django_leasequeue.http."):
            yield path, pattern


def requests(wid: str) -> list[Sent]:
    values = {
        "topic": "jobs", "queue": "jobs", "wid": wid, "seq": "1", "name": "a", "event": "e", "workflow": WORKFLOW,
        "rest": "a/b/c", "message": "50b68a50d6f5b8c8a7c62b01", "claim": "51db7067821e727dc24df754", "task": "a.b",
    }  # fmt: skip
    found = []
    for template, pattern in endpoints():
        named = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"<\1>", template)
        filled = re.sub(r"<(?:\w+:)?(\w+)>", lambda match: values[match[1]], named)
        path = "/" + re.sub(r"[\^$?]", "", filled).replace("//", "/").rstrip("/")
        path += "?node=w&lease_id=lease_1" if pattern.name == "steps" else ""
        view = getattr(pattern.callback, "view_class", None)
        names = ["get"] if view is None else [name for name in view.http_method_names if hasattr(view, name)]
        for name in names:
            if name != "options":
                method = name.upper()
                if (pattern.name, method) in (("topic", "DELETE"), ("queue", "DELETE")):
                    path = path.replace("jobs", "gone")
                which = (pattern.name, method)
                found.append(Sent(method, path, BODIES.get(which), which not in WITHOUT))
    return found


class Door:
    """A server process behind whose back the database fails."""

    def __init__(self, faulty: Faulty, token: str, *, wsgi: bool = False) -> None:
        environment = {
            **child_environment(faulty.url),
            "LEASEQUEUE_TEST": json.dumps({"STATEMENT_TIMEOUT": PATIENCE, "ASYNC_POOL_TIMEOUT": 2 * PATIENCE}),
            "LEASEQUEUE_TEST_LOG": "INFO",
        }
        self.server = Server(environment, api={"ACCESS": "keys", "KEY_CACHE_SECONDS": 0}, wsgi=wsgi)
        self.headers = {"authorization": f"Bearer {token}", "client-id": CLIENT}
        self.wsgi = wsgi
        self.wid = ""

    def send(self, sent: Sent, more: Mapping[str, str] | None = None) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and body of an answer; of a stream only that it began."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        accept = "text/event-stream" if sent.path.endswith("/work") or "/watch/" in sent.path else "*/*"
        query = "?node=w" if sent.path.endswith("/work") else "?ids=50b68a50d6f5b8c8a7c62b01"
        if sent.path.startswith("/admin/"):  # its pages refuse filters that they do not know
            query = ""
        try:
            connection.request(
                sent.method, sent.path + query, None if sent.body is None else json.dumps(sent.body),
                {"content-type": "application/json", "accept": accept, **self.headers, **(more or {})},
            )  # fmt: skip
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            stream = headers.get("content-type") == "text/event-stream"
            body = b"" if stream else answer.read()
            return answer.status, headers, json.loads(body) if body.startswith(b"{") else body
        finally:
            connection.close()

    def all(self) -> list[tuple[Sent, int, dict[str, str], Any]]:
        sent = requests(self.wid)
        with ThreadPoolExecutor(len(sent)) as threads:
            return [(one, *answer) for one, answer in zip(sent, threads.map(self.send, sent), strict=True)]

    def works(self) -> bool:
        one = self.send(Sent("POST", "/v0/topics/alive", {"records": [{"data": 1}]}))
        other = self.send(Sent("POST", "/v1/queues/jobs/messages", [{"ttl": 86_400, "body": 1}]))
        return one[0] in (200, 201) and other[0] == 201

    def lines(self, words: str) -> int:
        return sum(line.startswith(words) for line in self.server.read_log().splitlines())


@pytest.fixture(scope="module")
def database() -> Iterator[Faulty]:
    with TemporaryServer(HOME, migrated=True) as server, faulty(server) as found:
        yield found


@pytest.fixture(scope="module")
def token(database: Faulty) -> str:
    with psycopg.connect(database.server.conninfo()) as connection:
        return insert_key(connection, *ALL_SCOPES)


@pytest.fixture(scope="module")
def cookie(database: Faulty, django_db_blocker: DjangoDbBlocker) -> str:
    with django_db_blocker.unblock(), alias(database, "direct", direct=True) as using:
        user = get_user_model().objects.db_manager(using).create_superuser("operator")
        content = {SESSION_KEY: str(user.pk), BACKEND_SESSION_KEY: "django.contrib.auth.backends.ModelBackend"}
        data = SessionStore().encode({**content, HASH_SESSION_KEY: user.get_session_auth_hash()})
        ends = timezone.now() + timedelta(days=1)
        Session.objects.using(using).create(session_key="s" * 32, session_data=data, expire_date=ends)
    return f"sessionid={'s' * 32}"


@pytest.fixture(scope="module")
def doors(database: Faulty, token: str) -> Iterator[dict[str, Door]]:
    found = {kind: Door(database, token, wsgi=kind == "wsgi") for kind in ("asgi", "wsgi")}
    with ExitStack() as stack:
        for door in found.values():
            stack.enter_context(door.server)
            assert door.send(Sent("PUT", "/v1/queues/jobs"))[0] in (201, 204)
            assert door.send(Sent("POST", "/v0/topics/jobs", {"records": [{"data": 1}] * 30}))[0] == 200
            door.wid = door.send(Sent("POST", "/v0/watch", {"topics": {"jobs": 0}}))[2]["wid"]
        yield found


@pytest.fixture
def asgi(doors: dict[str, Door]) -> Door:
    return doors["asgi"]


@pytest.fixture(params=["asgi", "wsgi"])
def door(request: pytest.FixtureRequest, doors: dict[str, Door]) -> Door:
    eventually(doors[request.param].works)
    return doors[request.param]


# What can happen to a database.

END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname IS NOT NULL AND pid <> pg_backend_pid() AND application_name <> 'taken'"
)


@contextmanager
def during(begin: Callable[[], object], end: Callable[[], object]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        end()


@contextmanager
def shutting_down(database: Faulty) -> Iterator[None]:
    """57P03, and 57P01 for those who are connected: it waits for a last session."""
    pid = database.server.pid
    assert pid is not None
    with psycopg.connect(database.server.conninfo(), autocommit=True) as last:
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not database.server.is_ready())
        last.execute(END_OTHERS)
        try:
            yield
        finally:
            database.server.stop("fast")
            database.server.start()


@contextmanager
def full(database: Faulty) -> Iterator[None]:
    """53300: no connection is left, for a superuser neither."""
    with ExitStack() as stack:
        taken: list[psycopg.Connection[Any]] = []
        own = stack.enter_context(psycopg.connect(database.server.conninfo(), autocommit=True))
        (most,) = own.execute("SELECT current_setting('max_connections')::int").fetchone() or (0,)

        def take() -> bool:
            """Take what is free, until all are ours: who just begins or ends is in no list, and frees one later."""
            own.execute(END_OTHERS)
            with suppress(psycopg.OperationalError):
                while True:
                    taken.append(psycopg.connect(database.server.conninfo(), application_name="taken"))
            return len(taken) == most - 1

        try:
            eventually(take)
            yield
        finally:
            for one in taken:
                one.close()


@contextmanager
def locked(database: Faulty) -> Iterator[None]:
    """57014: statements wait until they are broken off."""
    with psycopg.connect(database.server.conninfo()) as connection:
        connection.execute("LOCK TABLE leasequeue_queue, leasequeue_apikey IN ACCESS EXCLUSIVE MODE")
        database.set("statement_timeout", "'300ms'")
        try:
            yield
        finally:
            database.reset("statement_timeout")
            connection.rollback()


def failing_with(state: str) -> Callable[[Faulty], Any]:
    """Let every write fail with a SQLSTATE, as it does on a full disk or after a conflict."""

    @contextmanager
    def fails(database: Faulty) -> Iterator[None]:
        with psycopg.connect(database.server.conninfo()) as connection:
            tables = connection.execute(
                "SELECT oid::regclass::text FROM pg_class WHERE relname LIKE 'leasequeue%' AND relkind IN ('r', 'p')"
            ).fetchall()
        database.execute(
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$",
            *(
                f"CREATE TRIGGER fails BEFORE INSERT OR UPDATE OR DELETE ON {table} EXECUTE FUNCTION fails()"
                for (table,) in tables
            ),
        )
        try:
            yield
        finally:
            database.execute("DROP FUNCTION fails CASCADE")

    return fails


#: Writes of both doors that change rows whatever there is.
WRITES = (
    Sent("POST", "/v0/topics/jobs", {"records": [{"data": 1}]}),
    Sent("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 1}), Sent("PUT", "/v0/topics/another", {}),
    Sent("POST", "/v1/queues/jobs/messages", [{"ttl": 86_400, "body": 1}]),
    Sent("POST", "/v1/queues/jobs/claims", {"ttl": 300, "grace": 60}), Sent("PUT", "/v1/queues/another"),
)  # fmt: skip
AWAY: dict[str, Callable[[Faulty], Any]] = {
    "refused": lambda database: during(database.proxy.refuse, database.proxy.heal),
    "hung": lambda database: during(database.proxy.hang, database.proxy.heal), "shutting down": shutting_down,
    "no connection left": full, "statement timeout": locked,
}  # fmt: skip
UNWRITABLE: dict[str, Callable[[Faulty], Any]] = {
    "read-only": lambda database: during(
        lambda: database.set("default_transaction_read_only", "on"),
        lambda: database.reset("default_transaction_read_only"),
    ),
    "disk full": failing_with("53100"), "recovery conflict": failing_with("40001"),
    "out of memory": failing_with("53200"),
}  # fmt: skip


def check_refusal(sent: Sent, status: int, headers: dict[str, str], body: Any) -> None:
    assert status == 503, (sent, status, body)
    assert int(headers["retry-after"]) >= 1, sent
    if sent.method == "HEAD":
        return
    if sent.path.startswith("/v1"):
        assert set(body) == {"title", "description"}, (sent, body)
    else:
        assert body["error"]["code"] == "not_ready", (sent, body)


@pytest.mark.slow
@pytest.mark.parametrize("fault", AWAY)
def test_a_database_that_is_away(database: Faulty, door: Door, fault: str) -> None:
    away, back = door.lines("The database is away"), door.lines("The database is back")
    with AWAY[fault](database):
        for sent, *answer in door.all():
            if sent.database:
                check_refusal(sent, *answer)
            else:
                assert answer[0] in (200, 404), sent
    eventually(door.works)
    for sent, status, _, body in door.all():
        assert status < 500 or (door.wsgi and status == 503 and "ASGI" in str(body)), (sent, status, body)
    assert (door.lines("The database is away"), door.lines("The database is back")) == (away + 1, back + 1)
    assert "Traceback" not in door.server.read_log()


@pytest.mark.parametrize("fault", UNWRITABLE)
def test_a_database_that_takes_no_writes(database: Faulty, door: Door, fault: str) -> None:
    with UNWRITABLE[fault](database):
        for sent in WRITES:
            # A connection of its pool may not have heard yet that the server takes no writes.
            eventually(lambda sent=sent: door.send(sent)[0] >= 400)
            check_refusal(sent, *door.send(sent))
        for sent, status, headers, body in door.all():
            if status >= 500 and "ASGI" not in str(body):
                check_refusal(sent, status, headers, body)
        # On a busy machine a read may meet the statement timeout of these servers.
        eventually(lambda: door.send(Sent("GET", "/v0/topics/jobs"))[0] == 200)
        eventually(lambda: door.send(Sent("GET", "/v1/health"))[0] == 204)
    eventually(door.works)
    assert "Traceback" not in door.server.read_log()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["refused", "hung", "shutting down", "read-only", "disk full"])
def test_streams_go_on_by_themselves(database: Faulty, asgi: Door, fault: str) -> None:
    eventually(asgi.works)
    topic = f"streamed-{fault.replace(' ', '-')}"
    produce = Sent("POST", f"/v0/topics/{topic}", {"records": [{"data": "before"}]})
    assert asgi.send(Sent("PUT", f"/v1/queues/{topic}"))[0] == 201
    assert asgi.send(produce)[0] in (200, 201)
    wid = asgi.send(Sent("POST", "/v0/watch", {"topics": {topic: 0}}))[2]["wid"]
    away, back = asgi.lines("Streams wait for the database"), asgi.lines("Streams go on")
    with (
        EventSource(asgi.server, f"topics/{topic}/work?node=w&max=10", headers=asgi.headers) as work,
        EventSource(asgi.server, f"watch/{wid}", headers=asgi.headers) as watch,
    ):
        assert work.event()["data"] == "before"
        assert watch.event()["data"] == "before"
        assert watch.event().name == "caught-up"
        with (AWAY | UNWRITABLE)[fault](database):
            eventually(lambda: asgi.lines("Streams wait for the database") > away)
        eventually(asgi.works)
        after = produce._replace(body={"records": [{"data": "after"}]})
        # Another of its connections may not have heard yet that the server takes writes again.
        eventually(lambda: asgi.send(after)[0] in (200, 201))
        assert work.event()["data"] == "after"
        event = watch.event()
        while event.name == "caught-up":
            event = watch.event()
        assert event["data"] == "after"
    # One line for both streams; what hangs is noticed by each in its own time.
    said = asgi.lines("Streams wait for the database") - away
    assert said == 1 or (fault == "hung" and said == 2)
    eventually(lambda: asgi.lines("Streams go on") == back + said)
    assert "Traceback" not in asgi.server.read_log()


def admin_pages() -> list[str]:
    found = []
    for resolver in get_resolver("testproject.urls").url_patterns:
        if isinstance(resolver, URLResolver) and resolver.app_name == "admin":
            for model in resolver.url_patterns:
                if isinstance(model, URLResolver) and str(model.pattern).startswith("leasequeue/"):
                    for page in model.url_patterns:
                        path = f"/admin/{model.pattern}{page.pattern}"
                        found.append(re.sub(r"<(?:\w+:)?\w+>", "1", path.replace("<uuid:uid>", WORKFLOW)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fault", AWAY)
def test_the_admins_pages(database: Faulty, asgi: Door, fault: str, cookie: str) -> None:
    pages = admin_pages()
    assert len(pages) > 20
    asked = {"cookie": cookie}

    def ask(path: str) -> tuple[int, dict[str, str]]:
        status, headers, _ = asgi.send(Sent("GET", path), asked)
        return status, headers

    eventually(lambda: ask("/admin/leasequeue/queue/")[0] == 200)
    with ThreadPoolExecutor(20) as threads:
        with AWAY[fault](database):
            for path, (status, headers) in zip(pages, threads.map(ask, pages), strict=True):
                if status == 503:
                    assert int(headers["retry-after"]) > 0, path
                else:  # a page that does not need what is locked
                    assert (fault, status < 500) == ("statement timeout", True), path
        # On a busy machine a page may meet the statement timeout of these servers.
        eventually(lambda: {status for status, _ in threads.map(ask, pages)} <= {200, 302, 403, 404, 405})
    assert "Traceback" not in asgi.server.read_log()
