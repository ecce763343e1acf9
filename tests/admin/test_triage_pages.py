"""The pages of triage: what they show, who may do what, how actions are confirmed and carried out."""

import csv
import io
import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.admin import deadletters
from django_leasequeue.engine.dead.bulkoperation import run_batch
from django_leasequeue.models import BulkOperation, LiveJob, OperatorAction, SavedFilter
from tests.admin import pages
from tests.admin.letters import bury, carry_out, failure, graves, start, states
from tests.admin.pages import Page, signed_in
from tests.admin.pages import admin_url as url
from tests.engine.helpers import make
from tests.support.rows import rows

pytestmark = pytest.mark.django_db

client = partial(signed_in, name="ann")
boss = pytest.fixture(pages.boss)


def text(answer: Any) -> str:
    return str(answer.content.decode())


def refused(answer: Any, words: str) -> bool:
    return answer.status_code == 400 and words in text(answer)


def confirmed(page: Any, **more: Any) -> dict[str, Any]:
    context = page.context_data
    asked = context["asked"]
    data = {
        "action": asked.kind, "confirmed": "1", "filter": context["filter_query"], "shown": context["shown"],
        "next": context["next"], "scope": "filter" if asked.seqs is None else "selection", "seq": asked.seqs or [],
    }  # fmt: skip
    if context["phrase"]:
        data["typed"] = context["phrase"]
    return {**data, **more}


def ask(boss: Client, kind: str, filter: str = "queue=work", **more: Any) -> Any:
    return boss.post(url("deadletters_act"), {"action": kind, "scope": "filter", "filter": filter, **more})


class TestWhatIsShown:
    def test_groups_and_a_list_with_a_filter(self, boss: Client) -> None:
        for name in ("deadletters", "deadletters_list"):
            assert "No dead letters" in text(boss.get(url(name)))
        one, two = bury(3, "mail", failure=failure("a", "no route", "shop.Timeout"), key=None), bury(1, "mail", key="k")
        page = boss.get(url("deadletters"))
        assert [words for words in ("shop.Timeout", "no route", 'role="img"') if words not in text(page)] == []
        assert [group["count"] for group in page.context_data["groups"]] == ["1", "3"]
        page = boss.get(url("deadletters_list"), {"text": "no route"})
        assert [letter["seq"] for letter in page.context_data["dead_letters"]] == one[::-1]
        assert [f'value="{seq}"' in text(page) for seq in one + two] == [True] * 3 + [False]
        assert "Looked at 4 dead letters: found 3" in text(page)
        seqs = [*one, *two, *bury(60, "mail")]
        page = boss.get(url("deadletters_list"), {"queue": "mail"})
        follow = boss.get(page.context_data["next_url"])
        assert "queue=mail" in page.context_data["next_url"]
        shown = [letter["seq"] for each in (page, follow) for letter in each.context_data["dead_letters"]]
        assert shown == sorted(seqs, reverse=True)

    def test_numbers_of_forms_have_no_separators(self, boss: Client, settings: Any) -> None:
        settings.USE_THOUSAND_SEPARATOR, settings.LANGUAGE_CODE = True, "de"
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval('leasequeue_job_seq_seq', 1569, false)")
        (seq,) = bury(1, "mail")
        SavedFilter.objects.create(id=1570, name="mine", query="queue=mail", owner="1", shared=True)
        for page in (boss.get(url("deadletters_list")), boss.get(url("job_change", seq))):
            assert f'value="{seq}"' in text(page)
            assert 'value="1.' not in text(page)

    @pytest.mark.parametrize("name", ["deadletters", "deadletters_list"])
    def test_a_filter_that_is_not_one(self, boss: Client, name: str) -> None:
        bury(1)
        page = boss.get(url(name), {"since": "yesterday", "text": "keep"})
        assert page.status_code == 400
        words = ("how long ago", 'value="yesterday"', 'value="keep"', 'name="action"')
        # Nothing can be done with what was not filtered.
        assert [each in text(page) for each in words] == [True, True, True, False]
        assert boss.get(url(name), {"after": "nonsense"}).status_code == 302


class TestActions:
    def test_one_job_at_once_a_discard_with_a_reason(self, boss: Client) -> None:
        first, second = bury(2)
        back = url("deadletters_list") + "?queue=work"
        form = {"action": "retry", "scope": "selection", "seq": first, "confirmed": "1", "next": back}
        answer = boss.post(url("deadletters_act"), form)
        assert (answer.status_code, answer["Location"], states([first, second])) == (302, back, ["ready", "dead"])
        line = OperatorAction.objects.get()
        assert (line.action, line.username, line.seqs, line.counts) == ("retry", "boss", [first], {"done": 1})
        assert LogEntry.objects.get().get_change_message().startswith("retry; jobs")
        again = boss.post(url("deadletters_act"), form, follow=True)
        assert ("already retried" in text(again), OperatorAction.objects.count()) == (True, 1)
        page = boss.post(url("deadletters_act"), {"action": "discard", "scope": "selection", "seq": second})
        assert boss.post(url("deadletters_act"), confirmed(page, reason=" ")).status_code == 400
        assert states([second]) == ["dead"]
        assert boss.post(url("deadletters_act"), confirmed(page, reason="a test order")).status_code == 302
        assert (states([second]), OperatorAction.objects.latest("pk").reason) == (["-"], "a test order")

    def test_a_group_by_an_operation(self, boss: Client) -> None:
        mine = bury(3, failure=failure("a"))
        bury(2, failure=failure("b"))
        page = ask(boss, "retry", "queue=work&fingerprint=a", next="/admin/")
        assert (page.status_code, page.context_data["count"], states(mine)) == (200, "3", ["dead"] * 3)
        answer = boss.post(url("deadletters_act"), confirmed(page, rate="50", jitter="2"))
        made = BulkOperation.objects.get()
        assert answer["Location"].startswith(url("bulkoperation_change", made.pk))
        said = (made.kind, made.queue, made.rate, made.jitter_ms, made.expected, made.username)
        assert said == ("retry", "work", 50, 2_000, 3, "boss")
        line = OperatorAction.objects.get()
        assert (line.operation_id, line.counts, "fingerprint=a" in line.filters) == (made.pk, {"expected": 3}, True)
        again = boss.post(url("deadletters_act"), confirmed(ask(boss, "retry")), follow=True)
        assert again.redirect_chain[0][0] == url("bulkoperation_change", made.pk)
        assert f"Operation {made.pk} (retry) is active" in text(again)
        engine.run(run_batch(made.pk))
        assert boss.get(answer["Location"]).status_code == 200

    def test_a_redrive_needs_a_target_that_is_there(self, boss: Client) -> None:
        make("spare")
        bury(2)
        page = ask(boss, "redrive", "")
        assert page.context_data["targets"] == ["spare", "work"]
        assert refused(boss.post(url("deadletters_act"), confirmed(page)), "needs the name")
        wrong = boss.post(url("deadletters_act"), confirmed(page, to="nowhere", rate="7"))
        assert refused(wrong, "no queue")
        assert 'value="7"' in text(wrong)  # what was typed stays
        assert boss.post(url("deadletters_act"), confirmed(page, to="spare")).status_code == 302
        assert BulkOperation.objects.get().target == "spare"

    def test_many_are_confirmed_by_typing(self, boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(deadletters, "TYPED", 3)
        bury(4)
        page = ask(boss, "retry")
        assert page.context_data["phrase"] == "retry 4"
        for typed in ("", "retry", "discard 4"):
            assert refused(boss.post(url("deadletters_act"), confirmed(page, typed=typed)), "exactly as shown")
        assert not BulkOperation.objects.exists()
        for other in (
            {"filter": "queue=other"}, {"action": "discard", "typed": "discard 4", "reason": "x"}, {"shown": ""},
            {"scope": "selection", "seq": [1, 2]},
        ):  # fmt: skip
            answer = boss.post(url("deadletters_act"), confirmed(page, **other))
            assert refused(answer, "not what the confirmation page showed"), other
        assert not BulkOperation.objects.exists()
        assert boss.post(url("deadletters_act"), confirmed(page, typed=" Retry  4 ")).status_code == 302

    def test_a_search_is_counted_exactly_and_what_dies_later_is_no_part_of_it(self, boss: Client) -> None:
        bury(1_200, failure=failure("a", "no route to host"))
        bury(30)
        page = ask(boss, "retry", "text=no+route")
        assert page.context_data["phrase"] == "retry 1200"
        bury(5, failure=failure("a", "no route to host"))
        assert boss.post(url("deadletters_act"), confirmed(page)).status_code == 302
        operation = BulkOperation.objects.get()
        assert (operation.expected, operation.expected_capped) == (1_200, False)
        carry_out(operation)
        assert (operation.state, operation.done) == ("done", 1_200)

    @pytest.mark.parametrize(("name", "query", "words"), [
        ("deadletters", {"qeue": "mail"}, "qeue' is no filter here. Did you mean 'queue'? There are: project"),
        ("deadletters_list", {"qeue": "mail"}, "mean 'queue'"), ("deadletters_export", {"x": 1}, "'x' is no filter"),
        ("deadletters", {"deliveries": "many"}, "Nothing is"), ("deadletters_list", {"since": "x"}, "Nothing is"),
        ("job_changelist", {"qeue": "mail"}, "'queue'"), ("job_changelist", {"state": "dedd"}, "Nothing is shown"),
        ("job_changelist", {"queue": "nowhere"}, "There is no queue nowhere"), ("overview", {"rang": 1}, "'range'"),
        ("tasks", {"rang": 1}, "'range'"), ("queue_changelist", {"name": 1}, "no filter"),
        ("workflow_changelist", {"sate": 1}, "'state'"),
    ])  # fmt: skip
    def test_what_is_no_filter_is_refused_and_nothing_is_shown(
        self, boss: Client, name: str, query: dict[str, Any], words: str
    ) -> None:
        bury(1)
        answer = boss.get(url(name, **query))
        assert answer.status_code == 400
        page = Page(answer.content.decode())
        assert words in page.text
        assert "Discard all" not in page.text
        assert "shop.Declined" not in page.text

    @pytest.mark.parametrize(("form", "words"), [
        ({"action": "explode"}, "Choose what to do"),
        ({"action": "retry", "scope": "selection"}, "No job is selected"),
        ({"action": "retry", "scope": "selection", "seq": "x"}, "A selection has at most"),
        ({"action": "retry", "scope": "everything"}, "Choose the selected jobs"),
        ({"action": "retry", "scope": "filter", "filter": "since=never"}, "how long ago"),
    ])  # fmt: skip
    def test_forms_that_make_no_sense(self, boss: Client, form: dict[str, str], words: str) -> None:
        answer = boss.post(url("deadletters_act"), {**form, "next": "https://evil.example/"}, follow=True)
        assert (answer.redirect_chain[0][0], words in text(answer)) == (url("deadletters"), True)

    def test_nothing_matches(self, boss: Client) -> None:
        bury(2)
        page = ask(boss, "retry", "queue=other")
        assert refused(boss.post(url("deadletters_act"), confirmed(page)), "Nothing matches")


def test_an_operation_is_paused_resumed_and_cancelled_and_tells_its_conflicts(boss: Client) -> None:
    seqs = bury(3)
    made = start("retry", seqs=[*seqs, 999_999], expected=4, rate=1)
    address = url("bulkoperation_change", made.pk)
    assert "No reaper leads" in text(boss.get(address))
    assert str(made.pk) in text(boss.get(url("bulkoperation_changelist")))
    for change, state in (("pause", "paused"), ("resume", "pending"), ("cancel", "cancelled")):
        assert boss.post(address, {"change": change}).status_code == 302
        made.refresh_from_db()
        assert made.state == state
    assert "does not allow" in text(boss.post(address, {"change": "pause"}, follow=True))
    assert boss.post(address, {"change": "explode"}).status_code == 302
    actions = list(OperatorAction.objects.order_by("pk").values_list("action", flat=True))
    assert actions == ["retry.pause", "retry.resume", "retry.cancel"]
    again = start("retry", seqs=[*seqs, 999_999], expected=4)
    engine.run(run_batch(again.pk))
    shown = text(boss.get(url("bulkoperation_change", again.pk)))
    for words in ("not there any more", "Progress: 4 of 4", 'data-lq-every="0"'):
        assert words in shown
    assert boss.get(url("bulkoperation_change", 999_999)).status_code == 404


class TestEdit:
    def test_with_a_difference_and_hidden_values_stay_as_they_are(self, boss: Client) -> None:
        real = {"args": [1, {"password": "s3cret"}], "kwargs": {"api_key": "k3y", "customer": 17}}
        (seq,) = bury(1, data=real)
        page = boss.get(url("deadletters_edit", seq))
        assert "s3cret" not in text(page)
        data = json.loads(page.context_data["text"])
        assert (data["args"][0], data["kwargs"]["customer"]) == (1, 17)
        data["args"][0] = 3
        form = {"data": json.dumps(data)}
        shown = boss.post(url("deadletters_edit", seq), form)
        lines = [(line[0], line[1:].strip()) for line in shown.context_data["lines"] if line[0] in "+-"]
        assert (lines, states([seq])) == ([("-", "1,"), ("+", "3,")], ["dead"])
        form |= {"confirmed": "1", "dead_at": shown.context_data["dead_at"], "reason": "ty\x00po"}
        assert boss.post(url("deadletters_edit", seq), form).status_code == 302
        new = LiveJob.objects.get()
        assert (new.source_seq, new.name) == (seq, "shop.tasks.charge")
        assert new.data == {**real, "args": [3, {"password": "s3cret"}]}
        line = OperatorAction.objects.get()
        assert (line.action, line.seqs, line.reason) == ("edit", [seq, new.pk], "typo")
        assert "s3cret" not in json.dumps(line.detail)
        assert boss.get(url("deadletters_edit", seq)).status_code == 404

    @pytest.mark.parametrize(("data", "words"), [
        ("{", "not JSON"), ('{"args": [1 2]}', f"[1 2]}}\n{' ' * 15}^</pre>"), ("[1]", "of a task"),
        ('{"args": {}}', "of a task"), ('{"args": [], "name": "os.system"}', "of a task"),
        ('{"args": [NaN]}', "must be JSON"), ('{"kwargs": {"thrid": 3}}', "thrid"),
        ('{"kwargs": {"note": "[hidden]"}}', "cannot be moved"),
    ])  # fmt: skip
    def test_what_is_refused(self, boss: Client, data: str, words: str) -> None:
        (seq,) = bury(1, name="tests.tasks.samples.add", data={"args": [1, 2], "kwargs": {"password": "s3cret"}})
        page = boss.post(url("deadletters_edit", seq), {"data": data, "confirmed": "1"})
        assert (refused(page, words), page.context_data["text"]) == (True, data)
        assert states([seq]) == ["dead"]

    @pytest.mark.parametrize(("shown", "edited", "made"), [
        ("A1 B2", "B*", "B2"), ("A1 B2", "B* A*", "B2 A1"), ("A1 B2", "A* X9 B*", "A1 X9 B2"),
        ("A1 A2 B3", "A* A*", "A1 A2"), ("A1 B2 C3", "A* X* C*", "A1 X2 C3"), ("A1 A2", "A*", None),
        ("A1 B2", "X*", None), ("A1 B2", "X* Y*", None),
    ])  # fmt: skip
    def test_hidden_values_stay_in_their_record(self, boss: Client, shown: str, edited: str, made: str | None) -> None:
        """A letter is a record, the digit its secret."""

        def records(text: str) -> dict[str, Any]:
            rows = [{"who": one[0], "token": "[hidden]" if one[1] == "*" else one[1]} for one in text.split()]
            return {"kwargs": {"rows": rows}}

        (seq,) = bury(1, data=records(shown))
        answer = boss.post(url("deadletters_edit", seq), {"data": json.dumps(records(edited)), "confirmed": "1"})
        if made is None:
            assert refused(answer, "cannot be moved")
        else:
            assert LiveJob.objects.get().data == records(made)


def test_a_filter_is_saved_shared_and_forgotten(boss: Client) -> None:
    ann = client("view_job")
    bob = client("view_job", name="bob")
    save = {"name": "time\0outs", "filter": "text=timeout&queue=mail", "next": url("deadletters") + "?text=timeout"}
    assert ann.post(url("deadletters_filters"), save)["Location"] == save["next"]
    assert ["timeouts" in text(who.get(url("deadletters"))) for who in (ann, bob)] == [True, False]
    ann.post(url("deadletters_filters"), {**save, "shared": "1"})
    made = SavedFilter.objects.get()
    assert (made.shared, made.owner_name) == (True, "ann")
    assert "shared by ann" in bob.get(url("deadletters")).content.decode()
    bob.post(url("deadletters_filters"), {"forget": made.pk})
    assert SavedFilter.objects.exists()
    ann.post(url("deadletters_filters"), {"forget": made.pk})
    assert not SavedFilter.objects.exists()
    for wrong in ({**save, "name": " "}, {**save, "filter": "since=never"}, {"forget": "x"}):
        assert ann.post(url("deadletters_filters"), wrong).status_code == 302
    assert not SavedFilter.objects.exists()


class TestExport:
    def rows(self, answer: Any) -> list[dict[str, Any]]:
        return [json.loads(line) for line in b"".join(answer.streaming_content).decode().splitlines()]

    def test_json_lines_redacted(self) -> None:
        (seq,) = bury(1, data={"kwargs": {"password": "s3cret", "customer": 5}}, failure=failure("a", "oops"))
        bury(1, failure=failure("b"))
        query = {"fingerprint": "a", "format": "jsonl"}
        (full,) = self.rows(client("view_job", "view_payload").get(url("deadletters_export"), query))
        assert (full["seq"], full["data"]) == (seq, {"kwargs": {"password": "[hidden]", "customer": 5}})
        assert full["errors"][0]["message"] == "oops"
        (shape,) = self.rows(client("view_job").get(url("deadletters_export"), query))
        assert shape["data"]["kwargs"] == {"password": "[text]", "customer": "[number]"}
        assert set(shape["errors"][0]) == {"at", "node", "type"}
        assert OperatorAction.objects.filter(action="export", filters__contains="fingerprint=a").count() == 2

    def test_csv_that_no_spreadsheet_executes(self, boss: Client) -> None:
        bury(1, key="=cmd|calc", failure=failure("a", '@SUM(1)\n"quoted"'))
        bury(250)
        answer = boss.get(url("deadletters_export"), {"format": "csv"})
        assert answer["Content-Disposition"] == 'attachment; filename="dead-letters.csv"'
        rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
        assert len(rows) == 251
        assert (rows[-1]["key"], rows[-1]["error"]) == ("'=cmd|calc", '\'@SUM(1)\n"quoted"')
        assert boss.get(url("deadletters_export"), {"format": "xml"}).status_code == 404
        assert boss.get(url("deadletters_export"), {"since": "never"}).status_code == 302

    def test_the_audit(self, boss: Client) -> None:
        (seq,) = bury(1, data={"kwargs": {"a": 1}})
        boss.post(url("deadletters_edit", seq), {"data": '{"kwargs": {"a": 2}}', "confirmed": "1"})
        lines = self.rows(boss.get(url("operatoraction_export"), {"format": "jsonl", "action": "edit"}))
        assert (lines[0]["username"], "difference" in lines[0]["detail"]) == ("boss", True)
        viewer = client("view_operatoraction")
        export = url("operatoraction_export", format="jsonl", action="edit")
        assert "difference" not in self.rows(viewer.get(export))[0]["detail"]
        assert str(seq) in viewer.get(url("operatoraction_changelist")).content.decode()
        line = url("operatoraction_change", OperatorAction.objects.get(action="edit").pk)
        changed = b"&quot;a&quot;: 2"
        assert changed not in viewer.get(line).content
        assert changed in boss.get(line).content


class TestPermissions:
    @pytest.fixture
    def facts(self) -> dict[str, Any]:
        make("spare")
        (seq,) = bury(1, key="k")
        return {"seq": seq, "operation": start("retry", "queue=other").pk}

    def test_buttons_are_for_those_who_may(self, facts: dict[str, Any]) -> None:
        for name in ("deadletters", "deadletters_list"):
            assert 'name="action"' not in text(client("view_job").get(url(name)))
            shown = text(client("view_job", "retry_job").get(url(name)))
            assert ('value="retry"' in shown, 'value="discard"' in shown) == (True, False)
        operation = client("view_bulkoperation").get(url("bulkoperation_change", facts["operation"]))
        assert 'name="change"' not in text(operation)

    def test_payloads_cannot_be_guessed_by_filters(self, facts: dict[str, Any]) -> None:
        viewer = client("view_job", "retry_job")
        shown = text(viewer.get(url("deadletters_list"), {"payload": "data.kwargs.customer = 0"}))
        assert ("may not see payloads" in shown, 'name="payload"' in shown) == (True, False)
        answer = ask(viewer, "retry", "payload=data.kwargs.customer = 0")
        assert "may not see payloads" in text(viewer.get(answer["Location"]))
        assert "found 0" in text(viewer.get(url("deadletters_list"), {"text": "customer"}))

    def test_a_model_page_adds_or_deletes_nothing(self, boss: Client, facts: dict[str, Any]) -> None:
        for model in ("deadletter", "bulkoperation", "operatoraction"):
            assert boss.get(f"/admin/leasequeue/{model}/add/").status_code in (403, 404)
            address = f"/admin/leasequeue/{model}/{facts['operation']}/delete/"
            assert boss.post(address, {"post": "yes"}).status_code in (302, 403, 404)
        assert BulkOperation.objects.filter(pk=facts["operation"]).exists()


def test_what_a_filter_tests_in_payloads_is_for_those_who_may_see_them(boss: Client) -> None:
    graves()
    made = start("discard", 'payload=data.card%3D"hidden-card"&queue=work', reason="r")
    rows(OperatorAction).create(
        at=datetime.now(UTC), source="admin", action="discard", queue="work", filters=made.filters, counts={}, seqs=[]
    )
    stranger = client("view_operatoraction", "view_bulkoperation")
    export = url("operatoraction_export", format="csv")
    for page in (url("operatoraction_changelist"), export, url("bulkoperation_change", made.pk)):
        seen, hidden = (b"".join(who.get(page)) for who in (boss, stranger))
        assert (b"hidden-card" in seen, b"hidden-card" in hidden, b"work" in hidden) == (True, False, True), page
