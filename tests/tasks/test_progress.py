"""A user's own task on a page: what is shown of it, to whom, and by which words."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404
from django.template import Context, Template, TemplateSyntaxError
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import translation

from django_leasequeue import engine, progress_view
from django_leasequeue.engine import Ending, Failure, Release
from django_leasequeue.engine.jobs.results import Progress, progress
from django_leasequeue.engine.rows import LeasedJob
from django_leasequeue.tasks import api
from testproject.demo.tasks import survey
from tests.support.shop import files

pytestmark = pytest.mark.django_db


@pytest.fixture
def mine() -> Any:
    return survey.using(tags={"user": User.objects.create_user("ann").pk}).enqueue("/src")


@pytest.fixture
def ann(mine: Any, client: Client) -> Client:
    client.force_login(User.objects.get(username="ann"))
    return client


def running(value: Any) -> LeasedJob:
    """Claim the task, and report its progress."""
    (job,) = engine.run(engine.claim("demo", "worker-1"))
    engine.run(progress([Progress(job.seq, job.token, value)], "worker-1"))
    return job


def finish(job: LeasedJob, result: Any = None) -> None:
    engine.run(engine.finish([Ending(job.seq, job.token, result)], "worker-1"))


def asked(client: Client, result: Any) -> dict[str, Any]:
    response = client.get(reverse("leasequeue_progress", args=[result.id]))
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    return dict(response.json())


def tag(**names: Any) -> str:
    arguments = "".join(f" {name}={name}" for name in names if name != "result")
    return Template(f"{{% load leasequeue %}}{{% leasequeue_progress result{arguments} %}}").render(Context(names))


def test_a_task_from_its_start_to_its_end(ann: Client, mine: Any) -> None:
    seen = {"status": "READY", "ended": False, "words": "Waiting", "detail": "", "done": None, "of": None}
    assert asked(ann, mine) == seen
    job = running({"done": 3, "of": 12})
    seen = {"status": "RUNNING", "ended": False, "words": "Running", "detail": "3 of 12", "done": 3, "of": 12}
    assert asked(ann, mine) == seen
    finish(job, {"files": 12})
    seen = {"status": "SUCCESSFUL", "ended": True, "words": "Done", "detail": "", "done": 1, "of": 1}
    assert asked(ann, mine) == seen


def test_a_cancelled_task_is_not_there(ann: Client, mine: Any) -> None:
    assert mine.cancel()
    assert ann.get(reverse("leasequeue_progress", args=[mine.id])).status_code == 404


def test_a_failure_shows_how_far_it_came_and_nothing_of_its_error(ann: Client, mine: Any) -> None:
    job = running({"done": 3, "of": 12, "text": "3 files"})
    failure = Failure("builtins.ValueError", "a secret", "Traceback", "x")
    engine.run(engine.release([Release(job.seq, job.token, 0, failure)], "worker-1"))
    assert asked(ann, mine)["words"] == "Waiting", "for the next attempt"
    (job,) = engine.run(engine.claim("demo", "worker-1"))
    engine.run(engine.finish([Ending(job.seq, job.token, failure=failure)], "worker-1"))
    found = asked(ann, mine)
    assert (found["status"], found["words"], found["ended"], found["done"]) == ("FAILED", "Failed", True, 3)
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(("value", "shown"), [
    ({"done": 5, "of": 4}, (4, 4, "4 of 4")),
    ({"done": -1, "of": 0.5}, (0, 0.5, "0 of 0.5")),
    ({"done": 1, "of": 0}, (None, None, "")),
    ({"done": True, "of": 2}, (None, None, "")),
    ({"done": 10**400, "of": 10**401}, (None, None, "")),
    ({"done": "1", "of": "2", "text": "half"}, (None, None, "half")),
    ({"text": "x" * 300}, (None, None, "x" * 200)),
    (0.5, (None, None, "")),
    (None, (None, None, "")),
])  # fmt: skip
def test_what_a_report_shows(ann: Client, mine: Any, value: Any, shown: Any) -> None:
    running(value)
    found = asked(ann, mine)
    assert (found["done"], found["of"], found["detail"]) == shown


def test_what_a_result_says_of_its_progress(mine: Any) -> None:
    assert mine.progress is None
    running(0)
    assert mine.progress == 0


def test_nobody_else_sees_it_and_it_looks_like_none(ann: Client, mine: Any) -> None:
    address = reverse("leasequeue_progress", args=[mine.id])
    assert Client().get(address).status_code == 404
    other = Client()
    other.force_login(User.objects.create_superuser("root"))
    assert other.get(address).status_code == 404
    for unknown in ("0", "x" * 300, "a\x00b", mine.id[:-1] + ("1" if mine.id[-1] == "0" else "0")):
        assert ann.get(reverse("leasequeue_progress", args=[unknown])).status_code == 404
    assert ann.post(address).status_code == 405


@pytest.mark.parametrize("allowed", [None, True, "shop.views.is_mine"])
def test_a_view_without_a_function_of_the_host_is_refused(allowed: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"^allowed must be a function .*; it is "):
        progress_view(allowed)


def test_a_coroutine_function_would_let_everybody_in_and_is_refused() -> None:
    async def allowed(request: Any, result: Any) -> bool:
        return False

    with pytest.raises(ImproperlyConfigured, match="no coroutine function"):
        progress_view(allowed)  # type: ignore[arg-type]


def test_the_function_gets_the_request_and_the_result(mine: Any) -> None:
    given: list[Any] = []

    def allowed(request: Any, result: Any) -> bool:
        given.extend((request, result.id, result.args))
        return False

    request = RequestFactory().get("/")
    with pytest.raises(Http404):
        progress_view(allowed)(request, id=mine.id)
    assert given == [request, mine.id, ["/src"]]


class TestTheTag:
    def test_a_running_task_is_asked_for_and_has_a_link_without_the_script(self, mine: Any) -> None:
        running({"done": 1, "of": 2.5})
        mine.refresh()
        with translation.override("de"):  # no comma in the numbers of an attribute
            text = tag(result=mine, label='<"Import">', next="/there/")
        assert f'data-url="{reverse("leasequeue_progress", args=[mine.id])}"' in text
        assert '<progress aria-label="&lt;&quot;Import&quot;&gt;" max="2.5" value="1">' in text
        assert '<span role="status">' in text
        assert '<a href="" data-refresh>' in text
        assert '<a href="/there/" data-next hidden>' in text
        assert text.count("<script") == text.count('<script type="module" src="/static/leasequeue/progress.js">') == 1

    def test_an_ended_one_needs_no_script(self, mine: Any) -> None:
        finish(running(None))
        mine.refresh()
        text = tag(result=mine, next="/there/")
        assert '<progress aria-label="Progress" max="1" value="1">' in text
        assert "<script" not in text
        assert '<a href="/there/" data-next>' in text
        assert '<a href="" data-refresh hidden>' in text

    def test_one_of_which_nothing_is_known_is_indeterminate(self, mine: Any) -> None:
        assert '<progress aria-label="Progress"></progress>' in tag(result=mine)

    def test_words_are_the_host_s_to_translate(self, mine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("django_leasequeue.tasks.progress.gettext", lambda text: f"[{text}]")
        assert '<span role="status">[Waiting]</span>' in tag(result=mine)

    @pytest.mark.parametrize("given", ["", None, 7])
    def test_something_else_than_a_result(self, given: Any) -> None:
        with pytest.raises(TemplateSyntaxError, match="takes the result of a task of LeaseQueueBackend; it is"):
            tag(result=given)


def test_the_how_to(settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: Client) -> None:
    settings.LEASEQUEUE = {"TASK_MODULES": ["shop"]}
    settings.ROOT_URLCONF = "shop.urls"
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path / "shop/templates"]}]
    for name in ("tasks", "tasks.exceptions"):  # on Django 5.2 the backport's
        module = api.exceptions if "." in name else api.tasks
        monkeypatch.setitem(sys.modules, f"django.{name}", module)
    client.force_login(User.objects.create_user("ann"))
    with files("how-to/progress.md", tmp_path, monkeypatch):
        response = client.get("/import/", follow=True)
        (address, _), *_ = response.redirect_chain
        assert 'aria-label="Import of orders"' in response.content.decode()
        assert client.get(address.replace("import", "progress")).json()["words"] == "Waiting"
        client.force_login(User.objects.create_user("bob"))
        for there in (address, "/import/unknown/"):
            for asked in (there, there.replace("import", "progress")):
                assert client.get(asked).status_code == 404


class TestTheDemoSPage:
    @pytest.fixture
    def page(self, ann: Client, mine: Any) -> str:
        return reverse("demo_survey", args=[mine.id])

    def test_it_starts_a_task_of_its_user_and_shows_it(self, ann: Client, mine: Any) -> None:
        response = ann.post(reverse("demo_start"), follow=True)
        assert "<leasequeue-progress" in response.content.decode()
        assert response.context["result"].task.tags == {"user": User.objects.get().pk}

    def test_it_shows_the_result_at_the_end(self, ann: Client, mine: Any, page: str) -> None:
        finish(running(None), {"files": 12, "lines": 300})
        assert "300 lines in 12 files" in ann.get(page).content.decode()

    def test_nobody_else_sees_it(self, page: str) -> None:
        other = Client()
        assert other.get(page).status_code == 302
        other.force_login(User.objects.create_user("bob"))
        assert other.get(page).status_code == 404
