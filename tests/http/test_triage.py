"""Dead letters over HTTP, with the keys and scopes of the other doors."""

from typing import Any

import pytest

from django_leasequeue.models import OperatorAction
from tests.admin.letters import bury, failure, graves
from tests.http import contract
from tests.http.asking import Ask, asking

pytestmark = pytest.mark.django_db


@pytest.fixture
def ask(settings: Any) -> Ask:
    return asking(settings, "/v0/dead-letters")


def test_groups(ask: Ask) -> None:
    bury(3, "mail", failure=failure("a", "no route", "shop.Timeout"))
    bury(1, "mail", failure=failure("b"))
    status, page = ask("/groups", {"page_size": 1})
    assert (status, [(group["fingerprint"], group["dead_letters"]) for group in page["groups"]]) == (200, [("b", 1)])
    status, page = ask("/groups", {"page_size": 1, "cursor": page["next_cursor"]})
    (group,) = page["groups"]
    assert (
        group["queue"], group["dead_letters"], group["error_type"], group["error"],
    ) == ("mail", 3, "shop.Timeout", "no route")  # fmt: skip
    assert (sum(group["bars"]), page["next_cursor"], page["complete"]) == (3, None, True)


def test_letters(ask: Ask) -> None:
    seqs = bury(3, "mail", data={"password": "s3cret", "n": 1})
    status, page = ask("", {"page_size": 2, "queue": "mail"})
    assert (status, [letter["seq"] for letter in page["dead_letters"]]) == (200, seqs[:0:-1])
    assert (page["dead_letters"][0]["data"], page["dead_letters"][0]["errors"]) == (None, [])
    _, page = ask("", {"queue": "mail", "cursor": page["next_cursor"], "with_payload": "true", "payload": "data.n = 1"})
    (letter,) = page["dead_letters"]
    assert letter["data"] == {"password": "[hidden]", "n": 1}
    assert letter["errors"][0]["message"] == "card 17 was declined"


def test_one(ask: Ask) -> None:
    (seq,) = bury(1, "mail", data={"n": 1})
    status, answer = ask(f"/{seq}")
    assert (status, answer["dead_letter"]["seq"], answer["dead_letter"]["data"]) == (200, seq, {"n": 1})
    for other in (seq + 1, 10**30, -1, 0, "x", "²"):
        status, answer = ask(f"/{other}")
        assert (status, answer["error"]["code"]) == (404, "not_found")


def test_a_key_sees_its_project_and_its_topics_only(ask: Ask) -> None:
    graves("mail", project="acme")
    (mine,), (other,), (theirs,) = bury(1, "mail"), bury(1, "shop"), bury(1, "mail", project="acme")
    _, page = ask("", topics=["mail"])
    assert [letter["seq"] for letter in page["dead_letters"]] == [mine]
    _, page = ask("/groups", topics=["mail"])
    assert [group["queue"] for group in page["groups"]] == ["mail"]
    _, page = ask("", project="acme")
    assert [letter["seq"] for letter in page["dead_letters"]] == [theirs]
    _, page = ask("", {"project": "acme"})
    assert [letter["seq"] for letter in page["dead_letters"]] == [other, mine]
    assert ask("", {"queue": "shop"}, topics=["mail"])[0] == 403
    assert [ask(f"/{seq}", topics=["mail"])[0] for seq in (mine, other, theirs)] == [200, 404, 404]


def test_redrive(ask: Ask) -> None:
    graves("mail")
    graves("shop")
    home, moved, stepless, other = [bury(1, queue)[0] for queue in ("mail", "mail", "mail", "shop")]

    def post(seq: int, body: dict[str, Any], scopes: tuple[str, ...] = ("read", "write"), **rights: Any) -> Any:
        return ask(f"/{seq}/redrive", body, method="post", scopes=scopes, **rights)

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


def test_it_is_described() -> None:
    operations = [
        operation for methods in contract.document(contract.TRIAGE)["paths"].values() for operation in methods.values()
    ]
    assert {operation["operationId"] for operation in operations} == {
        "listDeadLetters", "listDeadLetterGroups", "getDeadLetter", "redriveDeadLetter", "getWorkflow", "listLimits",
        "listJobs",
    }  # fmt: skip
