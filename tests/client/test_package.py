"""What the client needs: httpx, and nothing of Django."""

import inspect
import re

import pytest

from django_leasequeue import client
from django_leasequeue.client import AsyncClient, Client, Retry, Worker
from django_leasequeue.exceptions import InvalidOption
from tests.support.absent import run_without
from tests.support.documents import DOCS


def test_it_works_where_there_is_no_django() -> None:
    absent = {"django", "rest_framework", "psycopg", "pgtrigger", "asgiref", "orjson"}
    done = run_without(absent, "from django_leasequeue.client import Client\nprint(Client('http://localhost/v0/'))")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "<Client http://localhost/v0>\n")


def test_it_says_what_to_install() -> None:
    done = run_without({"httpx"}, "import django_leasequeue.client")
    assert "pip install 'django-leasequeue[client]'" in done.stderr


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Client("http://localhost/v0", "lqk_secret"))


def test_options_that_cannot_be() -> None:
    with pytest.raises(InvalidOption, match="where the API is mounted"):
        Client("localhost:8000/v0")
    somewhere = AsyncClient("http://localhost/v0")
    with pytest.raises(InvalidOption, match="concurrency"):
        Worker(somewhere, "t", print, concurrency=0)
    with pytest.raises(InvalidOption, match="lease_ms"):
        Worker(somewhere, "t", print, lease_ms=5)


def test_the_reference_names_everything() -> None:
    text = (DOCS / "reference/http-client.md").read_text(encoding="utf-8")
    calls = [name for name, item in vars(Client).items() if callable(item) and not name.startswith("_")]
    assert [name for name in [*client.__all__, *calls] if f"`{name}" not in text and f" {name}" not in text] == []
    for kind in (Retry, Worker):
        for name, parameter in list(inspect.signature(kind).parameters.items()):
            if isinstance(parameter.default, int | float):
                default = parameter.default if isinstance(parameter.default, bool) else f"{parameter.default:_}"
                assert re.search(rf"\b{name}={default}\b", text), name
