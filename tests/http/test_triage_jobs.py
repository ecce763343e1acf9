"""Jobs by their tags over HTTP: of all states, with the keys and scopes of the other doors."""

from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import Failure, NewJob, Release
from django_leasequeue.models import Job
from tests.admin.letters import graves
from tests.engine.helpers import NODE, claim, enqueue, seqs
from tests.http.client import Ask

pytestmark = pytest.mark.django_db


def put(queue: str, *tags: dict[str, Any] | None, project: str = "") -> list[int]:
    graves(queue, project=project)
    jobs = [NewJob({"secret": 1}, name="shop.report", tags=each) for each in tags]
    return seqs(enqueue(*jobs, queue=queue, project=project))


def found(ask: Ask, *tags: str, **query: Any) -> list[int]:
    rights = {name: query.pop(name) for name in ("topics", "project") if name in query}
    status, page = ask("jobs", {"tags": list(tags), **query}, **rights)
    assert status == 200, page
    return [job["seq"] for job in page["jobs"]]


def test_jobs_of_all_states_are_found_by_all_of_the_tags(ask: Ask) -> None:
    one, two, text, _ = put("work", {"customer": 7, "eu": True}, {"customer": 7}, {"customer": "7"}, None)
    (other,) = put("mail", {"customer": 7, "eu": True})
    first, *_ = claim(2)
    engine.run(engine.release([Release(first.seq, first.token, failure=Failure("shop.Declined", "card"))], NODE))
    assert found(ask, "customer=7") == [other, two, one]
    assert found(ask, 'customer="7"') == [text]
    assert found(ask, "customer = 7", "eu=true") == [other, one]
    assert found(ask, "customer=7", queue="work", state="leased") == [two]
    assert found(ask, "customer=8") == []
    _, page = ask("jobs", {"tags": "customer=7", "page_size": 2})
    _, rest = ask("jobs", {"tags": "customer=7", "page_size": 2, "cursor": page["next_cursor"]})
    assert [job["seq"] for job in page["jobs"] + rest["jobs"]] == [other, two, one]
    assert rest["next_cursor"] is None
    job = Job.objects.get(pk=one)
    assert rest["jobs"][0] == {
        "seq": one, "key": job.key, "queue": "work", "task": "shop.report", "state": "dead", "tag": None,
        "tags": {"customer": 7, "eu": True}, "deliveries": 1, "enqueued_at": job.enqueued_at.isoformat(),
        "available_at": None, "started_at": None, "finished_at": job.finished_at and job.finished_at.isoformat(),
        "worker": None, "error_type": "shop.Declined", "error": "card",
    }  # fmt: skip


def test_a_page_looks_at_a_bounded_number_of_jobs(ask: Ask) -> None:
    wanted, *_ = put("work", *[{"kind": "mail"}] * 1_001)
    claim(1)
    _, page = ask("jobs", {"tags": "kind=mail", "state": "leased"})
    assert page["jobs"] == []
    assert found(ask, "kind=mail", state="leased", cursor=page["next_cursor"]) == [wanted]


def test_a_key_sees_what_is_in_its_topics_and_its_project(ask: Ask) -> None:
    (mine,) = put("mail.out", {"customer": 7})
    (hidden,) = put("shop", {"customer": 7})
    (theirs,) = put("mail.out", {"customer": 7}, project="acme")
    assert found(ask, "customer=7", topics=["mail."]) == [mine]
    assert found(ask, "customer=7") == [hidden, mine]
    assert found(ask, "customer=7", project="acme") == [theirs]
    assert ask("jobs", {"tags": "customer=7", "queue": "shop"}, topics=["mail."])[0] == 403


@pytest.mark.parametrize(("query", "says"), [
    ({}, "Name one tag at least"), ({"tags": "customer"}, "a name and a value"),
    ({"tags": ["a=1", "a=2"]}, "each name once"), ({"tags": "1a=2"}, "The name of a tag"),
    ({"tags": "a=" + "x" * 300}, "256"), ({"tags": f"a={2**70}"}, "64 bits"), ({"tags": "a=1\x00"}, "NUL"),
    ({"tags": [f"a{number}=1" for number in range(17)]}, "at most 16"),
    ({"tags": "a=1", "state": "gone"}, "A state is one of"), ({"tags": "a=1", "queue": "no such"}, "no such"),
    ({"tags": "a=1", "cursor": "x"}, "cursor"), ({"tags": "a=1", "page_size": 0}, "page_size"),
])  # fmt: skip
def test_what_is_wrong_is_said(ask: Ask, query: dict[str, Any], says: str) -> None:
    status, answer = ask("jobs", query)
    assert (status, says in str(answer)) == (400, True), answer
