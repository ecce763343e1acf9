"""The host's context (``LEASEQUEUE["CONTEXT"]``): captured at each way to enqueue, restored around each way to run."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_leasequeue import Queue, engine
from django_leasequeue.admin.jobs import copy_job
from django_leasequeue.engine import metadata
from django_leasequeue.engine.dead.action import edit_and_retry
from django_leasequeue.engine.jobs.enqueue import enqueue_staged, lock_replayed, remove_replayed
from django_leasequeue.engine.metadata import MAX_CONTEXT_BYTES
from django_leasequeue.exceptions import InvalidOption, JobFailed
from django_leasequeue.metrics import otel
from django_leasequeue.models import DeadLetter, Job
from django_leasequeue.tasks import ContextNotRestored, Workflow, chain, chord, group
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.testing import Harness
from tests.admin.pages import look, signed_in
from tests.support.shop import shop
from tests.support.waiting import eventually
from tests.tasks import context_samples as tasks
from tests.tasks import context_settings, samples
from tests.worker.support import working

pytestmark = pytest.mark.django_db

HOOKS = "tests.tasks.context_samples"


@pytest.fixture(autouse=True)
def hooks(settings: Any) -> Iterator[None]:
    settings.LEASEQUEUE = context_settings.LEASEQUEUE
    token = tasks.user.set(None)
    yield
    tasks.user.reset(token)
    assert tasks.entered == tasks.left


@contextmanager
def asked_by(user: str | None) -> Iterator[None]:
    token = tasks.user.set(user)
    try:
        yield
    finally:
        tasks.user.reset(token)


def contexts() -> list[dict[str, Any] | None]:
    """The context of each job, the oldest first."""
    return [(meta or {}).get("$context") for meta in Job.objects.order_by("pk").values_list("meta", flat=True)]


def use(**changes: str | None) -> Any:
    return override_settings(LEASEQUEUE={"CONTEXT": {**context_settings.LEASEQUEUE["CONTEXT"], **changes}})


def test_every_way_to_enqueue_carries_it() -> None:
    with asked_by("ada"):
        tasks.tell.enqueue()
        tasks.tell.using(priority=5, timeout=3, tags={"a": 1}).enqueue()
        tasks.tell.enqueue_many([(1,), (2,)])
        tasks.tell.get_backend().enqueue_many([(tasks.tell, (), {}), (tasks.write, (), {}), (tasks.tell, (), {})])
        tasks.tell.enqueue_many([()] * 150)
        chain(tasks.tell.s(), tasks.tell.s()).enqueue()
        group([tasks.tell.s()]).enqueue()
        chord([tasks.tell.s()], tasks.write.s()).enqueue()
        workflow = Workflow()
        workflow.add(tasks.tell.s())
        workflow.enqueue()
    assert contexts() == [{"user": "ada", "token": "t-1"}] * (1 + 1 + 2 + 3 + 150 + 2 + 1 + 2 + 1)


def test_it_is_captured_once_for_each_task_of_a_call() -> None:
    tasks.tell.enqueue()
    tasks.tell.enqueue_many([()] * 150)
    tasks.tell.get_backend().enqueue_many([(tasks.tell, (), {}), (tasks.write, (), {}), (tasks.tell, (), {})])
    chain(tasks.tell.s(), tasks.write.s(), tasks.tell.s()).enqueue()
    assert tasks.captured == ["tell"] * 3 + ["write", "tell", "write"]
    assert contexts() == [None] * (1 + 150 + 3 + 3), "the function returned None"


@pytest.mark.django_db(transaction=True)
async def test_an_async_enqueue_carries_it(leasequeue: Harness) -> None:
    with asked_by("ada"):
        await tasks.tell.aenqueue()
        await tasks.tell.aenqueue_many([(), ()])
        await chain(tasks.tell.s(), tasks.tell.s()).aenqueue()
    ran = await leasequeue.adrain()
    assert [job.result for job in ran] == ["ada"] * 5


def test_without_the_setting_nothing_is_called_or_stored() -> None:
    with override_settings(LEASEQUEUE={}), asked_by("ada"):
        tasks.tell.enqueue()
        chain(tasks.tell.s(), tasks.tell.s()).enqueue()
    assert (tasks.captured, contexts()) == ([], [None] * 3)


def test_jobs_run_one_after_the_other_with_their_own(leasequeue: Harness) -> None:
    results = []
    for user in ("ada", None, "bob"):
        with asked_by(user):
            results.append(tasks.tell.enqueue())
    with asked_by("the worker's"):
        leasequeue.drain()
    assert [result.wait() for result in results] == ["ada", "the worker's", "bob"]


@pytest.mark.parametrize(("task", "expected"), [
    (tasks.tell, "ada"), (tasks.write, "ada"), (tasks.tell_isolated, "ada"), (tasks.atell_isolated, "ada"),
    (tasks.atell, ["ada", "ada"]), (tasks.sleep, ["ada", "ada"]),
    (tasks.start, ["ada", ["ada", "ada"]]), (tasks.replace_it, "ada"), (tasks.try_twice, [2, "ada"]),
])  # fmt: skip
def test_it_is_there_in_every_kind_of_task_and_whatever_that_does(
    leasequeue: Harness, task: Any, expected: Any
) -> None:
    with asked_by("ada"):
        result = task.enqueue()
    leasequeue.drain(advance=True)
    result.refresh()
    assert (result.return_value, tasks.user.get()) == (expected, None)
    assert contexts() == [{"user": "ada", "token": "t-1"}] * len(contexts())


def test_steps_that_a_task_adds_have_it_and_the_handler_of_a_failed_workflow(leasequeue: Harness) -> None:
    with asked_by("ada"):
        chain(tasks.grow.s(), tasks.tell.si()).enqueue()
        chain(tasks.fail.s(), on_failure=tasks.tell.s()).enqueue()
    assert [ran.result for ran in leasequeue.drain()].count("ada") == 3
    assert contexts() == [{"user": "ada", "token": "t-1"}] * 5


def test_it_stays_when_a_dead_letter_is_redriven_edited_and_copied(leasequeue: Harness) -> None:
    with asked_by("ada"):
        tasks.fail.enqueue_many([()] * 3)
    leasequeue.drain()
    Queue("other").create()
    first, second, third = DeadLetter.objects.order_by("pk")
    engine.run(copy_job(first.pk, "admin"))
    engine.run(engine.redrive("default", [first.pk]))
    engine.run(engine.redrive("default", [second.pk], to="other"))
    engine.run(edit_and_retry("default", third.pk, data={"args": []}, dead_at=third.dead_at))
    assert [str(ran.error) for ran in leasequeue.drain()] == ["for ada"] * 4


def test_it_stays_when_a_dead_letter_is_replayed_from_the_lake(leasequeue: Harness) -> None:
    with asked_by("ada"):
        tasks.fail.enqueue()
    leasequeue.drain()
    letter, part = DeadLetter.objects.get(), "00000000-0000-0000-0000-000000000001"
    with connection.cursor() as cursor:
        insert = "INSERT INTO leasequeue_lakestage (part, source_seq, queue, name) VALUES (%s, %s, '', %s) RETURNING id"
        cursor.execute(insert, [part, letter.pk, tasks.fail.module_path])
        (number,) = cursor.fetchone() or ()
    with transaction.atomic():
        taken = engine.run(lock_replayed([part], number - 1, number, results=False))
        engine.run(enqueue_staged([part], number - 1, number))
        engine.run(remove_replayed(taken))
    assert [(ran.seq > letter.pk, str(ran.error)) for ran in leasequeue.drain()] == [(True, "for ada")]


def test_a_job_that_replaces_another_brings_its_own(leasequeue: Harness) -> None:
    for user in ("ada", "bob"):
        with asked_by(user):
            samples.send_invoice.using(on_conflict="replace").enqueue(1)
    assert contexts()[-1] == {"user": "bob", "token": "t-1"}


def test_an_error_of_the_function_that_captures_is_the_caller_s() -> None:
    with use(CAPTURE=f"{HOOKS}.fail_to_capture"):
        for enqueue in (tasks.tell.enqueue, chain(tasks.tell.s()).enqueue, lambda: tasks.tell.enqueue_many([()])):
            with pytest.raises(LookupError, match="no user"):
                enqueue()
    assert Job.objects.count() == 0


@pytest.mark.parametrize(("task", "says"), [
    (samples.add, r"None or a dict with texts as names; it is \['a list'\]"),
    (samples.plain, r"a dict with texts as names; it is \{1: 2\}"),
    (samples.echo, "the context that tests.tasks.context_samples.wrong returns must be JSON: an object of type object"),
    (samples.with_options, "must have at most 8,192 bytes as JSON; it has 10,0"),
])  # fmt: skip
def test_what_is_no_context_is_refused(task: Any, says: str) -> None:
    with use(CAPTURE=f"{HOOKS}.wrong"), pytest.raises(InvalidOption, match=says):
        task.using().enqueue()
    assert (Job.objects.count(), MAX_CONTEXT_BYTES) == (0, 8_192)


@pytest.mark.parametrize(("restore", "says"), [
    (f"{HOOKS}.fail_to_restore", "fail_to_restore failed before the task ran: LookupError: no such user"),
    (f"{HOOKS}.no_manager", "no_manager failed before the task ran: TypeError: it must return a context manager"),
    ("shop.no_such", "shop.no_such failed before the task ran: ModuleNotFoundError"),
    (f"{HOOKS}.FailingExit", "FailingExit failed after the task ran: KeyError: 'exit'"),
    (None, "this process does not know how to restore it"),
])  # fmt: skip
@pytest.mark.parametrize("task", [tasks.try_twice, tasks.atell])
def test_an_error_of_the_function_that_restores_fails_the_attempt(
    leasequeue: Harness, task: Any, restore: str, says: str
) -> None:
    with asked_by("ada"):
        task.using(max_attempts=2, backoff=0).enqueue()
    with use(CAPTURE=None, RESTORE=restore):
        first, second = leasequeue.drain()
    assert (first.state, second.state) == ("failing", "dead"), "whatever errors the task is tried again for"
    assert isinstance(first.error, ContextNotRestored)
    assert says in str(first.error)
    assert "t-1" not in str(first.error)


def test_no_error_of_a_task_is_swallowed(leasequeue: Harness) -> None:
    with asked_by("ada"):
        tasks.fail.enqueue()
        tasks.sleep.enqueue()
    with use(RESTORE=f"{HOOKS}.Swallowing"):
        assert [ran.state for ran in leasequeue.drain()] == ["dead", "suspended"]


def test_contexts_can_be_dropped(leasequeue: Harness) -> None:
    with asked_by("ada"):
        result = tasks.tell.enqueue()
    with use(CAPTURE=None, RESTORE="contextlib.nullcontext"):
        assert result.wait() is None


def test_a_recurring_task_has_none() -> None:
    with asked_by("ada"):
        template = tasks.tell.get_backend().template_of(tasks.tell, (), {})
    assert (tasks.captured, template["job"].get("meta")) == ([], None)


def test_a_trace_and_tags_stand_beside_it() -> None:
    otel.instrument()
    try:
        with asked_by("ada"):
            tasks.tell.using(tags={"a": 1}).enqueue()
    finally:
        metadata.begin_trace = metadata.wrap_handler = None
    assert set(Job.objects.get().meta) == {"$tags", "$trace", "$context"}


def test_the_page_of_a_job_shows_it_redacted() -> None:
    with asked_by("ada"):
        tasks.tell.enqueue()
    (seq,) = Job.objects.values_list("pk", flat=True)
    page = look(signed_in("view_job", "view_payload"), "job_change", seq).text
    assert all(word in page for word in ("$context", "ada", "[hidden]"))
    assert "t-1" not in page
    assert "ada" not in look(signed_in("view_job"), "job_change", seq).text


@pytest.mark.slow  # processes of their own
@pytest.mark.django_db(transaction=True)
def test_a_worker_restores_it_in_threads_in_its_event_loop_and_in_processes(settings: Any) -> None:
    settings.SETTINGS_MODULE = "tests.tasks.context_settings"
    every = (tasks.tell, tasks.write, tasks.tell_isolated, tasks.atell_isolated, tasks.atell, tasks.try_twice)
    with asked_by("ada"):
        results = [task.enqueue() for task in every]
        broken = tasks.fail.enqueue()
    with working(TaskHandler(), queues=["default"], concurrency=2):
        assert [result.wait(60) for result in results] == [*["ada"] * 4, ["ada", "ada"], [2, "ada"]]
        with pytest.raises(JobFailed, match="for ada"):
            broken.wait(60)
        eventually(lambda: tasks.entered == tasks.left)


def test_the_page_s_own(leasequeue: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    with shop("how-to/context.md", tmp_path, monkeypatch) as page:
        settings.LEASEQUEUE = importlib.import_module("shop.settings").LEASEQUEUE
        page.test_the_task_speaks_the_caller_s_language(leasequeue)
