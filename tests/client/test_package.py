"""What the client needs: httpx, and nothing of Django; ``client_dist`` is made of what works alone."""

import inspect
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from django_leasequeue import client
from django_leasequeue.client import AsyncClient, Client, Retry, Worker
from django_leasequeue.exceptions import InvalidOption
from tests.support.absent import run_without
from tests.support.documents import DOCS

ROOT = Path(__file__).parents[2] / "client_dist"

USE = """
import httpx

def answer(request):
    job = {"$seq": 7, "$ts": 0, "lease_id": "a-1", "deadline": 1_000, "deliveries": 1, "data": {"id": 1}}
    answers = {
        "/v0/topics/images": {"topic": "images", "seqs": [7], "count": 1, "created": True, "deduped": False},
        "/v0/topics/images/claim": {"claimed": [job]},
        "/v0/topics/images/ack": {"acked": 1, "skipped": []},
    }
    return httpx.Response(200, json={**answers[request.url.path], "performance": {}})

from leasequeue_client import Client, Record

with Client("http://queue/v0", transport=httpx.MockTransport(answer)) as client:
    client.produce("images", [Record({"id": 1})])
    (job,) = client.claim("images", "here")
    print(job.seq, client.ack("images", "here", [job]).count)
"""


def test_it_works_where_there_is_no_django_and_says_what_to_install() -> None:
    absent = {"django", "rest_framework", "psycopg", "pgtrigger", "asgiref", "orjson"}
    done = run_without(absent, "from django_leasequeue.client import Client\nprint(Client('http://localhost/v0/'))")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "<Client http://localhost/v0>\n")
    done = run_without({"httpx"}, "import django_leasequeue.client")
    assert "pip install 'django-leasequeue[client]'" in done.stderr


def test_a_key_is_not_shown_and_options_that_cannot_be_are_refused() -> None:
    assert "secret" not in repr(Client("http://localhost/v0", "lqk_secret"))
    with pytest.raises(InvalidOption, match="URL of the API"):
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


def test_the_distribution_has_all_that_it_imports(tmp_path: Path) -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    shutil.copytree(ROOT / "leasequeue_client", tmp_path / "leasequeue_client")
    for source, target in wheel["wheel"]["force-include"].items():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / target)
    absent = {"django", "django_leasequeue", "rest_framework", "psycopg", "pgtrigger", "asgiref"}
    done = run_without(absent, USE, directory=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7 1\n", "")
