"""Dead letters, jobs by tags, workflows, limits over HTTP: keys and scopes are those of the other doors."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.engine import Ending, Failure, Limited, LimitValues, NewJob, Node, Release
from django_leasequeue.http.access import create_key
from django_leasequeue.models import Job, OperatorAction
from tests.admin.letters import bury, failure, graves
from tests.engine.helpers import NODE, claim, enqueue, seqs
from tests.http import contract
from tests.http.client import Ask

pytestmark = pytest.mark.django_db

#: The cursor of a list by name, whose name is one that PostgreSQL cannot store.
NUL_CURSOR = "WyJcdTAwMDAiXQ"


def test_groups(ask: Ask) -> None:
    bury(3, "mail", failure=failure("a", "no route", "shop.Timeout"))
    bury(1, "mail", failure=failure("b"))
    status, page = ask("dead-letters/groups", {"page_size": 1})
    assert (status, [(group["fingerprint"], group["dead_letters"]) for group in page["groups"]]) == (200, [("b", 1)])
    status, page = ask("dead-letters/groups", {"page_size": 1, "cursor": page["next_cursor"]})
    (group,) = page["groups"]
    shown = [group[name] for name in ("queue", "dead_letters", "error_type", "error")]
    assert shown == ["mail", 3, "shop.Timeout", "no route"]
    assert (sum(group["bars"]), page["next_cursor"], page["complete"]) == (3, None, True)


def test_letters_many_and_one(ask: Ask) -> None:
    seqs = bury(3, "mail", data={"password": "s3cret", "n": 1})
    status, page = ask("dead-letters", {"page_size": 2, "queue": "mail"})
    assert (status, [letter["seq"] for letter in page["dead_letters"]]) == (200, seqs[:0:-1])
    assert (page["dead_letters"][0]["data"], page["dead_letters"][0]["errors"]) == (None, [])
    query = {"queue": "mail", "cursor": page["next_cursor"], "with_payload": "true", "payload": "data.n = 1"}
    _, page = ask("dead-letters", query)
    (letter,) = page["dead_letters"]
    assert letter["data"] == {"password": "[hidden]", "n": 1}
    assert letter["errors"][0]["message"] == "card 17 was declined"
    status, answer = ask(f"dead-letters/{seqs[0]}")
    assert (status, answer["dead_letter"]["seq"], answer["dead_letter"]["data"]) == (200, seqs[0], letter["data"])
    for other in (seqs[-1] + 1, 10**30, -1, 0, "x", "²"):
        status, answer = ask(f"dead-letters/{other}")
        assert (status, answer["error"]["code"]) == (404, "not_found")


def test_a_key_sees_its_project_and_its_topics_only(ask: Ask) -> None:
    graves("mail", project="acme")
    (mine,), (other,), (theirs,) = bury(1, "mail"), bury(1, "shop"), bury(1, "mail", project="acme")
    _, page = ask("dead-letters", topics=["mail"])
    assert [letter["seq"] for letter in page["dead_letters"]] == [mine]
    _, page = ask("dead-letters/groups", topics=["mail"])
    assert [group["queue"] for group in page["groups"]] == ["mail"]
    _, page = ask("dead-letters", project="acme")
    assert [letter["seq"] for letter in page["dead_letters"]] == [theirs]
    _, page = ask("dead-letters", {"project": "acme"})
    assert [letter["seq"] for letter in page["dead_letters"]] == [other, mine]
    assert ask("dead-letters", {"queue": "shop"}, topics=["mail"])[0] == 403
    assert [ask(f"dead-letters/{seq}", topics=["mail"])[0] for seq in (mine, other, theirs)] == [200, 404, 404]


def test_redrive(ask: Ask) -> None:
    graves("mail")
    graves("shop")
    home, moved, stepless, other = [bury(1, queue)[0] for queue in ("mail", "mail", "mail", "shop")]

    def post(seq: int, body: dict[str, Any], scopes: tuple[str, ...] = ("read", "write"), **rights: Any) -> Any:
        return ask(f"dead-letters/{seq}/redrive", body, method="post", scopes=scopes, **rights)

    assert post(home, {}, ("read",))[0] == 403
    assert post(other, {}, topics=["mail"])[0] == 404
    assert post(moved, {"to": "shop"}, topics=["mail"])[0] == 403
    status, answer = post(stepless, {"from_step": "charge"})
    assert (status, answer["error"]["code"]) == (409, "not_redriven")
    assert [post(home, {})[1]["queue"], post(moved, {"to": "shop"})[1]["queue"]] == ["mail", "shop"]
    assert [post(home, {})[0], post(moved, {})[0]] == [404, 404]
    lines = OperatorAction.objects.filter(source="http").order_by("pk")
    assert [(line.action, line.seqs, line.detail["to"]) for line in lines] == [
        ("retry", [home], None), ("redrive", [moved], "shop"),
    ]  # fmt: skip


def start(*nodes: tuple[str, str, tuple[int, ...]], project: str = "") -> UUID:
    uid = uuid4()
    made = [Node(queue, NewJob({}, name="shop.step"), parents, label=label) for label, queue, parents in nodes]
    engine.run(engine.start_workflow(made, uid, name="report", project=project))
    return uid


def test_a_workflow_shows_its_status_and_its_jobs_by_the_page(ask: Ask) -> None:
    graves("work")
    uid = start(("a", "work", ()), ("b", "work", ()), ("c", "work", (0, 1)), ("d", "work", ()))
    a, b, d = claim(3)
    engine.run(engine.finish([Ending(a.seq, a.token, result={"secret": 1})], NODE))
    engine.run(engine.release([Release(b.seq, b.token, failure=Failure("shop.Declined", "card 17"))], NODE))
    assert claim(1) == []
    status, page = ask(f"workflows/{uid}", {"page_size": 3})
    assert status == 200
    assert {name: page[name] for name in ("workflow", "name", "state", "ended_at")} == {
        "workflow": str(uid), "name": "report", "state": "failed", "ended_at": None,
    }  # fmt: skip
    counts = ("total", "open", "completed", "failed", "cancelled")
    assert [page[name] for name in counts] == [4, 1, 1, 1, 1]
    assert page["jobs"][1] == {
        "seq": b.seq, "key": None, "label": "b", "task": "shop.step", "queue": "work", "state": "failed", "parents": [],
        "error_type": "shop.Declined", "error": "card 17",
    }  # fmt: skip
    assert [(job["state"], job["parents"]) for job in page["jobs"]] == [
        ("completed", []), ("failed", []), ("cancelled", [a.seq, b.seq]),
    ]  # fmt: skip
    _, page = ask(f"workflows/{str(uid).upper()}", {"page_size": 3, "cursor": page["next_cursor"]})
    assert ([job["seq"] for job in page["jobs"]], page["next_cursor"]) == ([d.seq], None)


def test_a_key_sees_workflows_of_its_project_that_are_all_in_its_topics(ask: Ask) -> None:
    graves("mail.out")
    graves("shop")
    graves("mail.out", project="acme")
    mine = start(("a", "mail.out", ()), ("b", "mail.out", (0,)))
    both = start(("a", "mail.out", ()), ("b", "shop", (0,)))
    theirs = start(("a", "mail.out", ()), project="acme")
    assert [ask(f"workflows/{uid}", topics=["mail."])[0] for uid in (mine, both, theirs)] == [200, 404, 404]
    assert [ask(f"workflows/{uid}")[0] for uid in (mine, both, theirs)] == [200, 200, 404]
    assert [ask(f"workflows/{uid}", project="acme")[0] for uid in (mine, theirs)] == [404, 200]


def test_limits_are_listed_with_their_waiting_jobs(ask: Ask) -> None:
    graves("work")
    one = LimitValues("customer", concurrency=1)
    engine.run(engine.enqueue("work", [NewJob({}, limit=Limited(f"c{n % 2}", one)) for n in range(5)]))
    engine.run(engine.set_limits([LimitValues("api", rate=100, per_ms=1_000)]))
    engine.run(engine.set_limits([LimitValues("theirs", rate=100, per_ms=1_000)], project="acme"))
    assert len(claim(10)) == 2
    status, page = ask("limits", {"page_size": 1})
    assert (status, [line["name"] for line in page["limits"]]) == (200, ["api"])
    assert (page["limits"][0]["pinned"], page["limits"][0]["rate"]) == (True, 100)
    _, page = ask("limits", {"page_size": 5, "cursor": page["next_cursor"]})
    assert page["limits"] == [
        {
            "name": "customer", "concurrency": 1, "rate": None, "per_ms": None, "burst": 0, "fair": False,
            "pinned": False, "keys": 2, "waiting": 3, "taken": 2, "capped": False,
        }
    ]  # fmt: skip
    assert page["next_cursor"] is None
    assert [line["name"] for line in ask("limits", project="acme")[1]["limits"]] == ["theirs"]
    assert ask("limits", topics=["work"])[0] == 403
    token = create_key("test", ["read"])[1]
    topic = Client().get("/v0/topics/work", headers={"authorization": f"Bearer {token}"}).json()
    contract.check("get", "/v0/topics/work", 200, topic)
    assert topic["queue"] == {"ready": 0, "in_flight": 2, "dead_lettered": 0, "waiting": 3}


def test_who_may_not_and_what_is_wrong(ask: Ask) -> None:
    (seq,) = bury(1, "mail")
    every = create_key("all", ["read", "write", "delete", "admin"])[1]
    for path in (f"workflows/{uuid4()}", "limits", "dead-letters", "dead-letters/groups", f"dead-letters/{seq}"):
        assert ask(path, scopes=("write", "delete", "admin"))[0] == 403
        answer = Client().get(f"/v0/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        for method in ("post", "put", "delete"):
            answer = getattr(Client(), method)(f"/v0/{path}", headers={"authorization": f"Bearer {every}"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
        wrong = (("cursor", "x"), ("cursor", NUL_CURSOR), ("page_size", "0"))
        for name, value in wrong if path != f"dead-letters/{seq}" else ():
            status, answer = ask(path, {name: value})
            assert (status, answer["error"]["code"]) == (400, "invalid_request")
            assert name in answer["error"]["message"]
    for name, value, words in (("since", "never", "how long ago"), ("deliveries", "x", ">=3")):
        status, answer = ask("dead-letters", {name: value})
        assert (status, words in answer["error"]["message"]) == (400, True)
    for nothing in (uuid4(), "x", "9" * 300, "²"):
        status, answer = ask(f"workflows/{nothing}")
        assert (status, answer["error"]["code"]) == (404, "not_found")


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


def test_tasks_are_paused_and_resumed(ask: Ask) -> None:
    rights: Any = {"method": "put", "scopes": ("read", "write")}
    status, answer = ask("paused-tasks/shop.tasks.pay", **rights)
    assert (status, answer["paused"], answer["changed"]) == (200, True, True)
    assert ask("paused-tasks/shop.tasks.pay", **rights)[1]["changed"] is False
    ask("paused-tasks/shop.tasks.mail", **rights, project="acme")
    status, page = ask("paused-tasks")
    assert (status, [each["name"] for each in page["paused_tasks"]]) == (200, ["shop.tasks.pay"])
    _, answer = ask("paused-tasks/shop.tasks.pay", **{**rights, "method": "delete"})
    assert (answer["paused"], answer["changed"]) == (False, True)
    assert ask("paused-tasks")[1]["paused_tasks"] == []
    lines = OperatorAction.objects.filter(source="http").order_by("pk")
    assert [(line.action, line.project, line.detail["name"]) for line in lines] == [
        ("pause_task", "", "shop.tasks.pay"),
        ("pause_task", "acme", "shop.tasks.mail"),
        ("resume_task", "", "shop.tasks.pay"),
    ]


def test_to_pause_a_task_needs_the_right_to_write_and_no_prefixes(ask: Ask) -> None:
    assert ask("paused-tasks/shop.tasks.pay", method="put")[0] == 403
    for method, scopes in (("get", ("read",)), ("put", ("read", "write"))):
        path = "paused-tasks" if method == "get" else "paused-tasks/shop.tasks.pay"
        status, answer = ask(path, method=method, scopes=scopes, topics=["mail"])
        assert (status, answer["error"]["code"]) == (403, "forbidden")
    status, answer = ask("paused-tasks/" + "x" * 513, method="put", scopes=("read", "write"))
    assert (status, answer["error"]["code"]) == (400, "invalid_request")
