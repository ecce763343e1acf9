"""Triage never breaks on what a payload or its metadata holds, whoever stored it: pages, lists, exports, commands."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_leasequeue import engine
from django_leasequeue.conf import process
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.dead import export
from django_leasequeue.engine.dead.action import act
from django_leasequeue.models import DeadLetter, LiveJob
from tests.admin.letters import die, graves, store
from tests.admin.pages import signed_in
from tests.support.commands import said

pytestmark = pytest.mark.django_db

#: What our own names in meta, and those of a task's payload, are followed by in other people's hands.
NAMES = st.sampled_from([
    '"$dead_letter_deliveries"', '"$dead_letter_from"', '"$dead_letter_src_seq"', '"$replayed_from"', '"$"',
    '"args"', '"kwargs"', '"timeout"', '"backoff"', '"backend"', '"password"', '""', '"a"', '"a.b"', '"\\u0000"',
    '"\\udc00"',
])  # fmt: skip
TEXTS = st.text(max_size=20).map(lambda text: json.dumps(text, ensure_ascii=True))
LEAVES = st.one_of(
    st.sampled_from([
        "null", "true", "-0", "1e999999", "-1E+400", "1E-99999", "0.1e1", "9" * 5_000, "-" + "9" * 400, '"\\u0000"',
        '"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00x"', '"=1+1"', '"[hidden]"', '"<script>"', '"2030-01-01"', '""',
        '"NaN"', "{}", "[]",
    ]),
    TEXTS, st.integers().map(str), st.floats(allow_nan=False, allow_infinity=False).map(repr),
)  # fmt: skip


def deep(levels: int, name: str | None = None) -> str:
    return "[" * levels + "]" * levels if name is None else f'{{"{name}":' * levels + "1" + "}" * levels


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=4).map(lambda parts: f"[{','.join(parts)}]")


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Objects, names that come twice among them."""
    pairs = st.tuples(NAMES | TEXTS, inner).map(":".join)
    return st.lists(pairs, max_size=5).map(lambda parts: f"{{{','.join(parts)}}}")


#: JSON text as a column of the type json takes it; not all of it is jsonb, Python's, or of one shape.
VALUES = st.recursive(LEAVES, lambda inner: lists(inner) | objects(inner), max_leaves=12)
DEEP = st.sampled_from([deep(61), deep(101), deep(150, "a"), deep(990), deep(3_000), deep(3_000, "password")])
DATAS = VALUES | DEEP
METAS = objects(VALUES) | VALUES | DEEP
TESTS = st.sampled_from([
    "data.a = 1", "data.a != 1", "meta.$dead_letter_deliveries = 3", 'meta.$dead_letter_from != "x"',
    "data.0 = null", "data.args.0 = 1e999999", "data.a = 1E-99999", "data.a = NaN", 'data.a = "\\u0000"',
    'meta.a = "\\ud800"', "data.a = [[[[", "data.a.a.a = {}", f"meta.a = {'9' * 400}",
])  # fmt: skip

#: What broke it once, or nearly did.
KNOWN = [
    ('{"a": 1}', '{"$dead_letter_deliveries": "many", "$dead_letter_from": 7}'),
    ("null", '{"$dead_letter_deliveries": 1e999999}'), ('{"\\u0000": "\\u0000"}', '{"a": "\\u0000"}'),
    ('{"a": "\\ud800"}', '{"\\udc00": 1}'), ('{"a": 1e999999}', "[1]"), ("9" * 5_000, '"text"'),
    (deep(990), deep(990, "a")), (deep(3_000, "a"), deep(3_000)), ('{"args": {"0": 1}, "kwargs": [1]}', "null"),
    ('{"a": 1, "a": 2}', '{"$dead_letter_from": null, "$dead_letter_from": {}}'),
]  # fmt: skip


def strict(text: str) -> Any:
    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    text.encode()
    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def people() -> dict[str, Client]:
    views = ("view_queue", "view_job", "retry_job", "redrive_job", "discard_job")
    return {
        "all": signed_in(*views, "view_payload", "edit_job", name="all"),
        "shapes": signed_in(*views, name="shapes"),
    }


@pytest.fixture(autouse=True)
def _open(settings: Any) -> Iterator[None]:
    settings.LEASEQUEUE = {"API": {"ACCESS": "open"}}
    yield
    process.forget()


def letters(payloads: list[tuple[str, str]]) -> list[int]:
    """Let jobs with these payloads die, some in their queue, some into a topic. Return their numbers."""
    graves("mail")
    graves("post", dead_letter="post.dlq")
    for number, (data, meta) in enumerate(payloads):
        queue = ("mail", "post")[number % 2]
        (job,) = engine.run(engine.enqueue(queue, [NewJob(data=0, meta={"m": 1}, name="shop.tasks.charge")]))
        store([job.seq], data=data, meta=meta)
        die([job.seq], queue)
    return list(DeadLetter.objects.order_by("seq").values_list("seq", flat=True))


def look_everywhere(people: dict[str, Client], seqs: list[int], test: str) -> None:
    query = urlencode({"payload": test})
    for path in (
        "/v0/dead-letters", "/v0/dead-letters?with_payload=true", f"/v0/dead-letters?with_payload=true&{query}",
        "/v0/dead-letters/groups", f"/v0/dead-letters/groups?{query}", *(f"/v0/dead-letters/{seq}" for seq in seqs),
    ):  # fmt: skip
        answer = Client().get(path)
        assert answer.status_code == 200, path
        strict(answer.content.decode())
    root = "/admin/leasequeue/deadletter"
    for who, client in people.items():
        paths = (f"{root}/", f"{root}/?{query}", f"{root}/list/", f"{root}/list/?{query}")
        for path in (*paths, *(f"/admin/leasequeue/job/{seq}/change/" for seq in seqs)):
            page = client.get(path)
            hidden = who == "shapes" and "payload" in path  # who does not see payloads cannot search in them
            assert page.status_code == (400 if hidden else 200), (who, path)
            page.content.decode()
        for kind in ("csv", "jsonl"):
            lines = b"".join(client.get(f"{root}/export/?format={kind}")).decode()
            read(kind, lines, len(seqs))
            b"".join(client.get(f"{root}/export/?format={kind}&{query}"))
        confirm = client.post(f"{root}/act/", {"action": "retry", "scope": "filter", "filter": query})
        assert confirm.status_code == (200 if who == "all" else 302)  # who sees no payload cannot search in it
    for words in (
        *(["groups"], ["groups", "--payload", test], ["list"], ["list", "--json", "--with-payload"]),
        *(["list", "--json", "--payload", test], ["export"], ["export", "--json"]),
        ["discard", "--reason", "x", "--payload", test, "--dry-run", "--json"],
    ):
        out = said("leasequeue_dlq", *words)
        if "export" in words:
            read("jsonl" if "--json" in words else "csv", out, len(seqs))
        elif "--json" in words:
            strict(out)


def read(kind: str, text: str, count: int) -> None:
    text.encode()
    if kind == "jsonl":
        assert len([strict(line) for line in text.split("\n") if line]) == count
    else:
        csv.field_size_limit(10**7)
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        assert len(rows) == count
        assert set(rows[0]) == set(export.COLUMNS)


def edit(client: Client, seq: int) -> None:
    """Send the form of a letter as it was shown: it is retried, or the page says why it cannot be."""
    address = f"/admin/leasequeue/deadletter/{seq}/edit/"
    page = client.get(address)
    assert page.status_code == 200
    shown = page.context_data["text"]  # type: ignore[index]  # a page of ours has it
    answer = client.post(address, {"data": shown, "confirmed": "1"})
    assert answer.status_code in (302, 400)


@pytest.mark.slow
@settings(max_examples=4, suppress_health_check=[
    HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large,
])  # fmt: skip
@given(payloads=st.lists(st.tuples(DATAS, METAS), min_size=1, max_size=4), test=TESTS)
@example(payloads=KNOWN, test="data.a != 1")
@example(payloads=KNOWN[::-1], test="meta.$dead_letter_deliveries = 1e999999")
def test_triage_reads_whatever_is_stored(people: dict[str, Client], payloads: list[tuple[str, str]], test: str) -> None:
    with transaction.atomic():
        seqs = letters(payloads)
        assert len(seqs) == len(payloads)
        look_everywhere(people, seqs, test)
        with transaction.atomic():
            for seq in seqs:
                edit(people["all"], seq)
            transaction.set_rollback(True)
        done = engine.run(act("retry", seqs))
        assert (done.done, done.conflicts) == (len(seqs), [])
        assert LiveJob.objects.filter(state=0, queue__name__in=("mail", "post")).count() == len(seqs)
        transaction.set_rollback(True)
