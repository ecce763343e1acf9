from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from django.test import Client as Browser
from pytest_django import DjangoDbBlocker

from django_leasequeue.client import Client
from django_leasequeue.conf import process
from django_leasequeue.http import payload
from django_leasequeue.http.access import create_key
from tests.http import contract
from tests.http.client import Api, Ask
from tests.http.servers import Server, serving
from tests.support.databases import empty_tables
from tests.support.environment import child_environment

_names = count(1)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    """What a server process remembers for a moment would survive the test's rollback."""
    yield
    process.forget()


@pytest.fixture
def open_api(settings: Any) -> None:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open", "COUNT_SECONDS": 0}}


@pytest.fixture
def api(db: None, open_api: None) -> Api:
    return Api()


@pytest.fixture(params=["orjson", "json"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the extra ``fast``."""
    if request.param == "json":
        monkeypatch.setattr(payload, "orjson", None)


@pytest.fixture(scope="session")
def servers(test_database_url: str) -> Iterator[list[Server]]:
    """Two server processes on the test database, open to everybody. They outlive a test: use topics of your own.

    They never look again by themselves: what comes promptly, comes because it was told.
    """
    yield from serving(child_environment(test_database_url), 2, application="tests.http.patient_asgi:application")


@pytest.fixture
def server(servers: list[Server]) -> Server:
    return servers[0]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address) as made:
        yield made


@pytest.fixture
def other(servers: list[Server]) -> Server:
    return servers[1]


@pytest.fixture
def topic(servers: list[Server]) -> str:
    """A name that no other test uses: what servers do is committed, and stays until the module is done."""
    return f"topic-{next(_names)}"


@pytest.fixture(scope="module")
def emptied(servers: list[Server], django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Empties the tables when the tests of a module, which commit, are done."""
    yield
    with django_db_blocker.unblock():
        empty_tables("default")


@pytest.fixture
def ask(settings: Any) -> Ask:
    """A function that gets an address with a new key and holds the answer against the contract."""
    settings.LEASEQUEUE = {"API": {"ACCESS": "keys", "KEY_CACHE_SECONDS": 0}}

    def get(
        path: str,
        query: Any = None,
        *,
        method: str = "get",
        scopes: tuple[str, ...] = ("read",),
        headers: dict[str, str] | None = None,
        **rights: Any,
    ) -> tuple[int, dict[str, Any]]:
        headers = {**(headers or {}), "authorization": f"Bearer {create_key('test', list(scopes), **rights)[1]}"}
        how: dict[str, Any] = {} if method == "get" else {"content_type": "application/json"}
        answer = getattr(Browser(), method)(f"/v0/{path}", query, headers=headers, **how)
        contract.check(method, f"/v0/{path}", answer.status_code, answer.json(), contract.TRIAGE)
        return answer.status_code, answer.json()

    return get
