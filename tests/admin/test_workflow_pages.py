"""Workflows in the admin: the list, the graph and the jobs beside it, cancelling, retrying what has failed."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.admin import workflows
from django_leasequeue.engine import Failure, NewJob, Node
from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import OperatorAction, Workflow
from tests.admin import pages
from tests.admin.letters import end, give_back, graves
from tests.admin.pages import Page, admin_url, signed_in, told
from tests.engine.helpers import claim

pytestmark = pytest.mark.django_db
client = pytest.fixture(lambda: signed_in("view_workflow", "view_job", "cancel_job", "retry_job", name="operator"))

_NASTY = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def queue(clock: Clock) -> int:
    return graves()


def start(*nodes: tuple[str, tuple[int, ...]], name: str = "report", **options: Any) -> UUID:
    """Start a workflow of nodes: the label and the places of the parents of each."""
    uid = uuid4()
    made = [Node("work", NewJob({"label": label}, name="shop.tasks.step"), parents, label=label)
            for label, parents in nodes]  # fmt: skip
    engine.run(engine.start_workflow(made, uid, name=name, **options))
    return uid


def diamond(name: str = "report") -> UUID:
    return start(("a", ()), ("b", (0,)), ("c", (0,)), ("d", (1, 2)), name=name)


def fail(job: engine.LeasedJob) -> None:
    give_back(job, failure=Failure("shop.Declined", f"card 17 {_NASTY}"))


def look(client: Client, uid: UUID, **query: Any) -> Page:
    return pages.look(client, "workflow", uid, **query)


def listed(client: Client, **query: Any) -> list[str]:
    answer = client.get(admin_url("workflow_changelist"), query)
    assert answer.status_code == 200
    assert Page(answer.content.decode()).unnamed_fields() == []
    return [line.name for line in answer.context["looked"]["workflows"]]


def act(client: Client, uid: UUID, action: str) -> str:
    return told(client, "workflow_act", uid, action=action)


def state(uid: UUID) -> tuple[str, int, int, int]:
    found = Workflow.objects.get(uid=uid)
    return str(found.get_state_display()), found.completed, found.failed, found.cancelled


class TestOne:
    def test_the_graph_is_a_picture_with_a_text_and_a_list_beside_it(self, client: Client) -> None:
        uid = diamond()
        (a,) = claim()
        end(a)
        (b,) = claim()
        page = look(client, uid)
        (drawn,) = [attrs for tag, attrs in page.tags if tag == "svg" and attrs.get("class") == "lq-svg"]
        assert (drawn["role"], drawn["aria-labelledby"]) == ("img", "graph-title graph-desc")
        assert {"graph-title", "graph-desc"} <= set(page.ids())
        assert "4 jobs in 3 layers: 1 running, 1 ready, 1 waiting, 1 completed." in page.text
        boxes = [attrs for tag, attrs in page.tags if tag == "rect" and attrs.get("class") == "lq-box"]
        assert len({box["x"] for box in boxes}) == 3, "a column for each layer"
        assert sum(1 for tag, attrs in page.tags if tag == "path" and attrs.get("class") == "lq-edge") == 4
        links = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
        assert admin_url("job_change", b.seq) in links
        assert f"shop.tasks.step work running a {a.seq}" in page.text
        address = admin_url("workflow", uid)
        for seq in (a.seq, a.seq + 3):  # also when the job has ended
            body = client.get(admin_url("job_change", seq)).content.decode()
            assert f'<dd><a href="{address}">report</a></dd>' in body
        without = signed_in("view_job").get(admin_url("job_change", a.seq)).content.decode()
        assert (address in without, "report" in without) == (False, True)

    def test_an_error_is_text_and_lines_that_are_not_drawn_are_told(self, client: Client, monkeypatch: Any) -> None:
        monkeypatch.setattr(workflows, "MAX_LINES", 3)
        uid = diamond(_NASTY)
        fail(*claim())
        claim()
        text = look(client, uid).text
        assert f"failed shop.Declined: card 17 {_NASTY}" in text
        assert "Lines that are not drawn: 1." in text

    def test_a_long_chain_has_as_many_columns_as_fit(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(workflows, "MAX_COLUMNS", 4)
        uid = start(("step", ()), *[("step", (n,)) for n in range(9)])
        page = look(client, uid)
        assert ("10 jobs in 10 layers" in page.text, page.text.count("step (3)")) == (True, 3 * 2)
        assert (page.text.count("step (1): ready"), "step (1)" in page.text) == (0, True)

    def test_many_jobs_are_drawn_as_sums_by_layer_and_name(self, client: Client, monkeypatch: Any) -> None:
        monkeypatch.setattr(workflows, "MAX_BOXES", 10)
        monkeypatch.setattr(workflows, "PAGE", 8)
        uid = start(*[("resize", ()) for _ in range(8)], *[(f"other {n}", ()) for n in range(9)], ("tell", (0, 1, 16)))
        end(*claim(3))
        claim()
        page = look(client, uid)
        assert len([attrs for tag, attrs in page.tags if tag == "rect" and attrs.get("class") == "lq-box"]) == 7
        for words in ("resize (8): 1 running, 4 ready, 3 completed", "5 other names: 5 ready", "1 to 8 of 18"):
            assert words in page.text
        assert "workflow-jobs" in page.ids(), "folded"
        last = look(client, uid, **{"from": 16})
        assert "tell" in last.text.partition("17 to 18 of 18")[2]
        assert "workflow-jobs" not in last.ids()
        ready = look(client, uid, state="ready", **{"from": 8})
        assert "Jobs: ready" in ready.text
        assert "9 to 13 of 13" in ready.text
        for nonsense in ("x", "-1", "999", "9" * 30, "²"):
            assert "1 to 8 of 18" in look(client, uid, **{"from": nonsense}).text

    def test_one_that_is_not_there(self, client: Client) -> None:
        for name in ("workflow", "workflow_act"):
            assert client.post(admin_url(name, uuid4()), {"action": "retry"}).status_code == 404
        assert client.post(admin_url("workflow_act", diamond()), {"action": "x"}).status_code == 404
        for pk in (10**6, 10**30):
            answer = client.get(admin_url("workflow_change", pk), follow=True)
            assert "forgotten" in answer.content.decode()


class TestActs:
    def test_cancel_takes_out_what_has_not_ended_and_is_written_down(self, client: Client) -> None:
        uid = diamond()
        assert "Jobs taken out: 4" in act(client, uid, "cancel")
        assert claim(10) == []
        assert state(uid) == ("cancelled", 0, 0, 4)
        line = OperatorAction.objects.get()
        assert (line.action, line.username, line.counts) == ("cancel_workflow", "operator", {"removed": 4})
        changed = {"state": ["running", "cancelled"]}
        assert line.detail == {"workflow": str(uid), "name": "report", "changed": changed}
        assert "has ended already" in act(client, uid, "cancel")
        assert OperatorAction.objects.count() == 1
        assert "workflow-cancel" not in look(client, uid).ids()

    def test_retry_sets_its_dead_letters_free_and_the_rest_goes_on(self, client: Client) -> None:
        uid = start(("a", ()), ("b", ()), ("c", (0, 1)))
        for job in (jobs := claim(2)):
            fail(job)
        assert claim(10) == []
        assert state(uid) == ("failed", 0, 2, 1)
        assert "Dead letters of report that are ready again: 2" in act(client, uid, "retry")
        line = OperatorAction.objects.get()
        seqs = sorted(job.seq for job in jobs)
        assert (line.action, sorted(line.seqs), line.counts) == ("retry_workflow", seqs, {"done": 2})
        end(*claim(2))
        end(*claim(1))
        assert claim(10) == []
        assert state(uid) == ("completed", 3, 0, 0)
        assert "None of its jobs is a dead letter" in act(client, uid, "retry")
        assert OperatorAction.objects.count() == 1


class TestList:
    def test_the_newest_first_by_state_and_name(self, client: Client) -> None:
        made = [diamond(name) for name in ("first", "second", "Second one")]
        engine.run(engine.cancel_workflow(made[1]))
        assert listed(client) == ["Second one", "second", "first"]
        assert listed(client, name="SECOND") == ["Second one", "second"]
        assert listed(client, name="second", state="cancelled") == ["second"]
        assert listed(client, state="completed") == []
        assert listed(client, state="nonsense", below="x", name="\x00") == ["Second one", "second", "first"]
        answer = client.get(admin_url("workflow_changelist"), {"name": f" {made[0]} "})
        assert (answer.status_code, answer["Location"]) == (302, admin_url("workflow", made[0])), "its id leads to it"

    def test_pages_and_searches_go_on_where_the_one_before_ended(self, client: Client, monkeypatch: Any) -> None:
        monkeypatch.setattr(workflows, "LIST_PAGE", 2)
        monkeypatch.setattr(workflows, "MAX_LOOKED_AT", 4)
        for number in range(7):
            start(("a", ()), name="seldom" if number in (0, 4) else "often")

        def named(**query: str) -> list[list[str]]:
            answers = pages.walk(client, "workflow_changelist", **query)
            return [[line.name for line in answer.context["looked"]["workflows"]] for answer in answers]

        assert named(state="") == [["often"] * 2, ["seldom", "often"], ["often"] * 2, ["seldom"]]
        assert named(name="seldom") == [["seldom"], ["seldom"]]
