"""Limits in the admin and by command: what they allow, what waits, setting them, giving them back to the code."""

import json
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.engine import Limited, LimitValues, NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import Limit, OperatorAction
from tests.admin import pages
from tests.admin.pages import Page, admin_url, signed_in
from tests.engine.helpers import claim, make
from tests.support.commands import said

pytestmark = pytest.mark.django_db
client = pytest.fixture(lambda: signed_in("view_limit", "change_limit", name="operator"))

ONE = LimitValues("customer", concurrency=1)


@pytest.fixture(autouse=True)
def queue(clock: Clock) -> int:
    return make()


def put(key: str, count: int = 1, values: LimitValues = ONE) -> None:
    engine.run(engine.enqueue("work", [NewJob({}, limit=Limited(key, values)) for _ in range(count)]))


def customers() -> Limit:
    put("customer:1", 5)
    put("customer:2", 2)
    assert len(claim(10)) == 2
    return Limit.objects.get()


def look(client: Client, *pk: int, **query: Any) -> Page:
    return pages.look(client, "limit_change" if pk else "limit_changelist", *pk, **query)


def post(client: Client, pk: int, **data: Any) -> str:
    if "action" in data:
        url, data["_selected_action"] = admin_url("limit_changelist"), pk
    else:
        url = admin_url("limit_change", pk)
    answer = client.post(url, data, follow=True)
    assert answer.status_code == 200
    return Page(answer.content.decode()).text


command = partial(said, "leasequeue_limits")


def lines() -> list[tuple[str, str, str, dict[str, Any]]]:
    return [(line.action, line.source, line.username, line.detail) for line in OperatorAction.objects.order_by("pk")]


class TestPages:
    def test_what_a_limit_allows_and_what_waits_for_it(self, client: Client) -> None:
        limit = customers()
        put("all", values=LimitValues("api", rate=100, per_ms=10_000, burst=5))
        claim()
        text = look(client).text
        assert "api - 100 in 10 s, 5 more at once the code 1 0 –" in text  # noqa: RUF001  (a dash, not a minus)
        assert "customer - 1 at a time the code 2 5 2" in text
        text = look(client, limit.pk).text
        assert "Keys looked at: 2. Jobs that wait for them: 5. Slots that are taken: 2." in text
        assert "customer:1 4 1 customer:2 1 1" in text

    def test_many_keys_and_jobs_are_counted_up_to_a_bound(self, client: Client, monkeypatch: Any) -> None:
        for name, value in (("MAX_KEYS", 2), ("CAP", 3), ("KEY_CAP", 3)):
            monkeypatch.setattr(f"django_leasequeue.engine.flow.figures.{name}", value)
        limit = customers()
        put("customer:3", 6)
        claim()
        assert "customer - 1 at a time the code 2+ 3+ 3" in look(client).text
        assert "customer:1 3+ 1 customer:2 1 1" in look(client, limit.pk).text
        assert "customer:3 3+ 1" in look(client, limit.pk, after="customer:2").text
        look(client, limit.pk, after="\x00" + "ü" * 5_000)

    def test_an_operator_sets_a_limit_and_gives_it_back(self, client: Client) -> None:
        limit = customers()
        values = {"concurrency": "3", "rate": "100", "per": "2.5", "burst": "7", "fair": "on"}
        text = post(client, limit.pk, **values)
        assert "The limit customer is set: 3 at a time, 100 in 2.5 s, 7 more at once, keys take turns." in text
        assert "an operator" in text
        # It counts for what waits already.
        assert len(claim(10)) == 3
        put("customer:1")
        claim(10)
        assert Limit.objects.get().concurrency == 3
        assert "The limit customer stays as it is." in post(client, limit.pk, **values)
        viewer = signed_in("view_limit", name="viewer")
        assert "_save" not in [attrs.get("name") for _, attrs in look(viewer, limit.pk).tags]
        for who in (viewer, signed_in("view_limit", "change_limit", name="strict", enforce_csrf_checks=True)):
            who.post(admin_url("limit_changelist"), {"action": "reset", "_selected_action": limit.pk})
        assert Limit.objects.get().pinned
        assert "The limit customer is given back: 1 at a time, the code's values." in post(
            client, limit.pk, action="reset"
        )
        assert "customer has the code's values already" in post(client, limit.pk, action="reset")
        assert (Limit.objects.get().concurrency, Limit.objects.get().pinned) == (1, False)
        changed = {
            "concurrency": [1, 3], "rate": [None, 100], "per_ms": [None, 2500], "burst": [0, 7], "fair": [False, True],
        }  # fmt: skip
        back = {name: [new, old] for name, (old, new) in changed.items()}
        assert lines() == [
            ("set_limit", "admin", "operator", {"limit": "customer", "changed": changed}),
            ("reset_limit", "admin", "operator", {"limit": "customer", "changed": back}),
        ]

    @pytest.mark.parametrize(("data", "words"), [
        ({"concurrency": "0"}, "concurrency must be an integer from 1 to 10000"),
        ({"concurrency": "many"}, "Enter a whole number."), ({"rate": "5"}, "give both rate and per"),
        ({"rate": "5", "per": "0.01"}, "per, in milliseconds, must be an integer from 100"),
        ({"rate": "5", "per": "1", "fair": "on"}, "a fair limit needs concurrency:"),
    ])  # fmt: skip
    def test_bad_values_are_refused_with_what_to_do(self, client: Client, data: dict[str, str], words: str) -> None:
        limit = customers()
        assert words in post(client, limit.pk, **data).replace("“", '"')
        limit.refresh_from_db()
        assert (limit.concurrency, limit.rate, limit.pinned, lines()) == (1, None, False, [])


class TestCommand:
    def test_the_list_and_what_is_set_and_reset_is_written_down(self) -> None:
        customers()
        engine.run(engine.set_limits([LimitValues("api", rate=5, per_ms=1_000)], project="acme"))
        head, line = command("list").splitlines()
        assert head.split() == ["name", "allows", "set", "by", "keys", "waiting", "slots", "taken"]
        assert line.split() == ["customer", "1", "at", "a", "time", "code", "2", "5", "2"]
        (found,) = json.loads(command("list", "--project", "acme", "--json"))
        assert (found["name"], found["rate"], found["per_ms"], found["pinned"]) == ("api", 5, 1_000, True)
        asked = ("set", "customer", "--rate", "10", "--per", "0.5", "--burst", "2")
        assert command(*asked) == "concurrency: 1 -> null\nrate: null -> 10\nper_ms: null -> 500\nburst: 0 -> 2\n"
        limit = Limit.objects.get(project="")
        assert (limit.concurrency, limit.rate, limit.per_ms, limit.burst, limit.pinned) == (None, 10, 500, 2, True)
        assert "as it is" in command(*asked)
        assert command("reset", "customer") == "The limit customer is given back: 1 at a time, the code's values.\n"
        assert "the code's values already" in command("reset", "customer")
        assert command("set", "customer", "--unlimited") == "concurrency: 1 -> null\n"
        assert "customer  everything  operator" in command("list")
        assert [line[:2] for line in lines()] == [(f"{deed}_limit", "command") for deed in ("set", "reset", "set")]

    @pytest.mark.parametrize(("words", "message"), [
        (["set", "customers", "--concurrency", "3"], "There is no limit 'customers'"),
        (["reset", "customers"], "There is no limit 'customers'"),
        (["reset", "customer", "--project", "acme"], "There is no limit 'acme/customer'"),
        (["set", "customer"], "Say what to limit"),
        (["set", "customer", "--unlimited", "--concurrency", "3"], "Say what to limit"),
        (["set", "customer", "--rate", "3"], "give both rate and per"),
        (["set", "customer", "--concurrency", "0"], "concurrency must be an integer from 1"),
    ])  # fmt: skip
    def test_what_is_wrong_is_said(self, words: list[str], message: str) -> None:
        customers()
        with pytest.raises(CommandError, match=message):
            command(*words)
        assert (Limit.objects.get().pinned, lines()) == (False, [])
