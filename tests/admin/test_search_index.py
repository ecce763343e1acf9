"""Indexes for searches by the payload: made, listed, dropped, and used by the admin's search and by the models."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.admin import job_list
from django_leasequeue.engine import NewJob, search_index
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import Job, OperatorAction
from tests.admin.letters import store
from tests.admin.pages import Page, admin_url, boss, walk
from tests.engine.helpers import make
from tests.support.commands import said

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "data.kwargs.customer"


@pytest.fixture(autouse=True)
def jobs() -> Iterator[list[int]]:
    make()
    data = [{"args": [], "kwargs": {"customer": n % 100, "note": "x" * 5_000 if n == 7 else "y"}} for n in range(500)]
    answers = engine.run(
        engine.enqueue("work", [NewJob(each, tags={"n": each["kwargs"]["customer"]}) for each in data])
    )
    yield [answer.seq for answer in answers]
    with connect("default") as own:
        for index in engine.run(search_index.search_indexes()):
            search_index.drop(own, index)


client = pytest.fixture(boss, name="client")


def plan(found: Any) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        try:
            return str(found.explain())
        finally:
            cursor.execute("RESET enable_seqscan")


def search(client: Client, **query: Any) -> tuple[list[int], int, str]:
    answer = client.get(admin_url("job_changelist", **query))
    looked = answer.context["looked"]
    return [job.seq for job in looked.jobs], looked.looked_at, Page(answer.content.decode()).text


@pytest.mark.parametrize(("path", "lookups"), [
    (PATH, {"data__kwargs__customer": 17}), ("data.kwargs", {"data__kwargs": {"customer": 17, "note": "y"}}),
    ("data", {"data__contains": {"kwargs": {"customer": 17}}}),
])  # fmt: skip
def test_models_use_it(jobs: list[int], path: str, lookups: dict[str, Any]) -> None:
    found = Job.objects.filter(**lookups)
    wanted = set(jobs[17::100])
    assert set(found.values_list("pk", flat=True)) == wanted
    assert search_index.name_of(path) not in plan(found)
    assert f"{path} has an index" in said("leasequeue_index", "add", path)
    assert search_index.name_of(path) in plan(found)
    assert set(found.values_list("pk", flat=True)) == wanted


@pytest.mark.parametrize("path", [PATH, "data"])
def test_the_search_uses_it_and_says_how_to_make_it(jobs: list[int], client: Client, path: str) -> None:
    query = {"payload": f"{PATH} = 17", "state": "any"}
    wanted = jobs[17::100][::-1]
    seqs, looked_at, text = search(client, **query)
    assert (seqs, looked_at) == (wanted, 500)
    assert f"leasequeue_index add {PATH}" in text
    said("leasequeue_index", "add", path)
    seqs, looked_at, text = search(client, **query)
    assert (seqs, looked_at) == (wanted, 5)
    assert "leasequeue_index" not in text
    # What the index does not say is looked at.
    assert search(client, **query, q="nothing")[0] == []
    assert search(client, **{**query, "payload": f'{PATH} = "17"'})[0] == []
    assert search(client, **{**query, "payload": f"{PATH} != 17", "since": "1h"})[1] > 5


def test_pages_go_on_and_too_many_are_walked_through(
    jobs: list[int], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_list, "PAGE", 2)
    said("leasequeue_index", "add", PATH)
    query = {"payload": f"{PATH} = 17", "state": "any"}
    pages = walk(client, "job_changelist", **query)
    assert [job.seq for page in pages for job in page.context["looked"].jobs] == jobs[17::100][::-1]
    monkeypatch.setattr(search_index, "MAX_FOUND", 3)
    assert search(client, **query)[1] > 3


def test_tags_have_their_index_always(jobs: list[int], client: Client) -> None:
    assert search(client, payload="tags.n = 17", state="any")[:2] == (jobs[17::100][::-1], 5)


def test_it_is_listed_and_dropped_and_every_value_can_be_enqueued() -> None:
    said("leasequeue_index", "add", "data.kwargs.note")
    assert "has an index." in said("leasequeue_index", "add", "data.kwargs.note")
    (listed,) = json.loads(said("leasequeue_index", "list", "--json"))
    assert (listed["path"], listed["valid"]) == ("data.kwargs.note", True)
    assert "data.kwargs.note  ready" in said("leasequeue_index", "list")
    for value in ("z" * 500_000, {"deep": [1]}, None):
        engine.run(engine.enqueue("work", [NewJob({"kwargs": {"note": value}})]))
    store([Job.objects.latest().pk], data='{"kwargs": {"note": "\\u0000"}}')  # jsonb cannot hold it
    assert Job.objects.filter(data__kwargs__note="z" * 500_000).count() == 1
    assert "is gone" in said("leasequeue_index", "drop", "data.kwargs.note")
    assert json.loads(said("leasequeue_index", "list", "--json")) == []
    actions = OperatorAction.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["add_index", "drop_index"]


@pytest.mark.parametrize(("words", "message"), [
    (["add", "order_id"], "the path is data or meta"), (["add", "data..x"], "the path is data or meta"),
    (["drop", "data.x"], "has no index of data.x"),
])  # fmt: skip
def test_what_is_wrong_is_said(words: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        said("leasequeue_index", *words)
