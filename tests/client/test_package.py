"""What the client needs: httpx, and nothing of Django."""

import subprocess
import sys

import pytest

from django_leasequeue.client import AsyncClient, Client, Worker
from django_leasequeue.exceptions import InvalidOption

WITHOUT = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
"""


def run(absent: set[str], code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", WITHOUT.format(absent=absent) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_works_where_there_is_no_django() -> None:
    absent = {"django", "rest_framework", "psycopg", "pgtrigger", "asgiref", "orjson"}
    done = run(absent, "from django_leasequeue.client import Client\nprint(Client('http://localhost/v0/'))")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "<Client http://localhost/v0>\n"


def test_it_says_what_to_install() -> None:
    done = run({"httpx"}, "import django_leasequeue.client")
    assert "pip install 'django-leasequeue[client]'" in done.stderr


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Client("http://localhost/v0", "lqk_secret"))


def test_options_that_cannot_be() -> None:
    with pytest.raises(InvalidOption, match="where the API is mounted"):
        Client("localhost:8000/v0")
    client = AsyncClient("http://localhost/v0")
    with pytest.raises(InvalidOption, match="concurrency"):
        Worker(client, "t", print, concurrency=0)
    with pytest.raises(InvalidOption, match="lease_ms"):
        Worker(client, "t", print, lease_ms=5)


def test_both_clients_have_the_same_calls() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")} - {"close", "aclose"}

    assert names(Client) == names(AsyncClient)
