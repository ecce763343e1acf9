"""Recurring tasks of several services on one database, and what is said of those that do not run."""

from contextlib import closing, contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from django_leasequeue import engine, signals
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import Limit, RecurringTask, StoredJob, UniqueKey
from django_leasequeue.reaper import Duty, concerns, declarations, recurring
from django_leasequeue.reaper.recurring import RecurringDuty
from django_leasequeue.tasks.api import task_signals
from tests.admin.letters import end
from tests.engine.helpers import claim
from tests.reaper.conftest import leading
from tests.reaper.recurring.support import NOON, REPORT, Looker, begun, jobs, made, next_tick
from tests.support.environment import python
from tests.support.heard import hearing
from tests.support.waiting import eventually
from tests.worker.processes import Process

pytestmark = pytest.mark.usefixtures("transactional_db")

BILL = "tests.reaper.recurring.tasks.bill"


def migrate(settings: Any, service: str, tasks: dict[str, Any] | None) -> str:
    """Migrate as a service does; return what it says."""
    settings.LEASEQUEUE = {"SERVICE": service, **({} if tasks is None else {"RECURRING": tasks})}
    out = StringIO()
    declarations.on_migrate("default", stdout=out)
    return out.getvalue()


def hourly(name: str, **fields: Any) -> dict[str, Any]:
    return {"task": REPORT, "schedule": "0 * * * *", "args": [name], **fields}


@contextmanager
def without_code() -> Any:
    """Nothing can be imported, as in a service that has other code."""

    def absent(path: str) -> Any:
        raise ImportError(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(declarations, "import_string", absent)
        yield


def test_a_leader_enqueues_those_of_another_service_without_its_code(settings, clock) -> None:
    bill = {"task": BILL, "schedule": "0 * * * *", "args": [7], "priority": 4}
    migrate(settings, "b", {"bills": bill})
    migrate(settings, "a", {})
    looker = Looker()
    with without_code():
        looker.look()
        assert looker.look(hours=1) == [7]
    (job,) = StoredJob.objects.select_related("queue")
    assert (job.queue.name, job.name, job.rank, job.max_deliveries) == ("careful", BILL, -4, 3)
    assert UniqueKey.objects.get().seq == job.seq
    claim(queue="careful")
    assert Limit.objects.get().name == "bills"
    row = RecurringTask.objects.get()
    assert (row.service, row.last_seq, row.last_error) == ("b", job.seq, "")


def test_a_service_changes_and_disables_its_own_only(settings, clock) -> None:
    assert "Recurring tasks of the service 'a', new: x, y." in migrate(
        settings, "a", {"x": hourly("ax"), "y": hourly("ay")}
    )
    assert "Recurring tasks of the service 'b', new: x." in migrate(settings, "b", {"x": hourly("bx")})
    looker = begun()
    assert sorted(looker.look(hours=1)) == ["ax", "ay", "bx"]
    text = migrate(settings, "b", {})
    assert "Recurring tasks that the service 'b' declares no longer are disabled: x." in text
    assert "LEASEQUEUE['SERVICE']" in text
    assert sorted(looker.look(hours=1)[3:]) == ["ax", "ay"]
    assert migrate(settings, "b", {}) == "", "it says what it does, once"


def test_settings_that_do_not_speak_of_recurring_tasks_leave_them_and_say_so(settings, clock) -> None:
    migrate(settings, "a", {"x": hourly("x")})
    text = migrate(settings, "a", None)
    assert "LEASEQUEUE['RECURRING'] is not set: the recurring tasks of the service 'a' stay as they are: x." in text
    assert RecurringTask.objects.get().enabled


def test_a_leader_hears_of_a_change_at_its_next_look(settings, clock) -> None:
    looker = begun()
    migrate(settings, "b", {"x": {**hourly("x"), "schedule": "every minute"}})
    looker.look()
    assert looker.look(minutes=1) == ["x"]
    migrate(settings, "b", {"x": {**hourly("y"), "schedule": "every 10 minutes"}})
    looker.look()
    assert looker.look(minutes=10) == ["x", "y"]


def test_a_changed_call_is_compiled_anew_and_migrate_compiles_what_was_made_in_the_database(settings, clock) -> None:
    row = made("mine", "every minute")
    settings.LEASEQUEUE = {"RECURRING": {}}
    call_command("migrate", verbosity=0)
    row.refresh_from_db()
    assert row.template["job"]["data"] == {"args": ["mine"]}
    assert row.service == "testproject"
    RecurringTask.objects.update(args=["other"])
    row.refresh_from_db()
    assert row.template is None
    looker = begun()
    assert looker.look(minutes=1) == ["other"]


def test_the_service_s_name_is_the_package_of_the_settings_behind_the_project(settings) -> None:
    assert declarations.service_name() == "testproject"
    settings.LEASEQUEUE = {"WORKER": {"PROJECT": "shop"}}
    assert declarations.service_name() == "shop/testproject"
    settings.LEASEQUEUE = {"SERVICE": "orders", "WORKER": {"PROJECT": "shop"}}
    assert declarations.service_name() == "orders"


def test_a_last_run_that_failed_is_said(clock) -> None:
    engine.run(engine.create("default", preset="django"))
    made()
    looker = begun()
    looker.look(hours=1)
    assert concerns.recurring_problems("default") == []
    (job,) = claim(queue="default")
    end(job, failure=engine.Failure("TaskNotFound", "There is no task"))
    (text,) = concerns.recurring_problems("default")
    assert text.startswith(f"The last run of recurring task report failed: job {job.seq} is ")


def test_all_schedules_run_however_many_there_are(clock, monkeypatch) -> None:
    monkeypatch.setattr(recurring, "PAGE", 3)
    for number in range(10):
        made(f"t{number}", "every minute")
    made("broken", "nonsense")
    looker = begun()
    assert not RecurringTask.objects.filter(next_tick_at=None).exists()
    assert len(looker.look(minutes=1)) == 10
    assert len(looker.look(minutes=1)) == 20


def test_a_zone_that_is_not_named_is_that_of_the_project_declared_or_made(settings, clock) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    migrate(settings, "a", {"x": hourly("x")})
    made("y", service="a")
    assert set(RecurringTask.objects.values_list("timezone", flat=True)) == {"Asia/Tokyo"}


def test_a_tick_that_is_later_than_its_grace_is_skipped_and_said(clock, caplog) -> None:
    made("nightly", "30 2 * * *", timezone="UTC")
    made("patient", "30 2 * * *", timezone="UTC", grace=12 * 3_600)
    made("often", "every 10 minutes")
    looker = begun()
    assert sorted(looker.look(hours=20, minutes=30)) == ["often", "patient"]
    assert "Recurring task nightly: The tick of 2030-01-02T02:30:00+00:00 was skipped: it was 6 h late" in caplog.text
    row = RecurringTask.objects.get(name="nightly")
    assert "its grace is 1 h" in row.last_error
    assert row.last_tick_at == NOON + timedelta(hours=14, minutes=30)
    assert next_tick("nightly") == NOON + timedelta(hours=38, minutes=30)
    assert sorted(looker.look()) == ["often", "patient"], "it is not made up for later"
    clock.now = NOON + timedelta(hours=38, minutes=30)
    assert "nightly" in looker.look()


def test_a_declared_grace_is_seconds_or_a_timedelta(settings) -> None:
    migrate(settings, "a", {"x": hourly("x", grace=90), "y": hourly("y", grace=timedelta(minutes=2)), "z": hourly("z")})
    assert list(RecurringTask.objects.order_by("name").values_list("grace", flat=True)) == [90, 120, None]
    settings.LEASEQUEUE = {"RECURRING": {"x": hourly("x", grace=-1)}}
    assert "grace must be whole seconds" in engine.run(declarations.sync("default")).invalid["x"]


def test_a_tick_calls_no_receiver_which_might_block(settings, clock) -> None:
    migrate(settings, "a", {"x": hourly("x")})
    looker = begun()
    clock.advance(hours=1)
    with hearing({"ours": signals.enqueued, "Django's": task_signals.task_enqueued}) as told:
        assert looker.look() == ["x"]
    assert told == []


def test_a_late_leader_enqueues_no_tick(clock) -> None:
    made()
    with leading(Duty("recurring", RecurringDuty(), 1.0)) as reaper, connect("default") as own:
        reaper.tick()
        clock.advance(hours=1)
        own.execute("UPDATE leasequeue_reaperterm SET term = term + 1, holder = 'another'")
        with pytest.raises(recurring.NotLeading):
            reaper.tick()
    assert jobs() == []
    assert RecurringTask.objects.get().last_tick_at is None


SETTINGS = """
from testproject.settings import *

LEASEQUEUE = {
    "SERVICE": "b", "TASK_MODULES": ["bservice"],
    "RECURRING": {"remind": {"task": "bservice.remind", "schedule": "every 1 seconds"}},
}
"""
SERVICE = '''
from django_leasequeue.tasks import task


@task(queue_name="of_b")
def remind() -> None:
    """Is there in service b alone."""
'''


@pytest.mark.slow  # three processes
def test_while_one_service_leads_the_ticks_of_another_one_are_enqueued(tmp_path: Path, subprocess_env) -> None:
    (tmp_path / "bservice.py").write_text(SERVICE)
    (tmp_path / "bsettings.py").write_text(SETTINGS)
    path = f"{tmp_path}:{subprocess_env['PYTHONPATH']}"
    env = {**subprocess_env, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "bsettings"}
    with closing(Process(subprocess_env, "django", "runreaper")):
        done = python("-m", "django", "migrate", env=env)
        assert "Recurring tasks of the service 'b', new: remind." in done.stdout, done.stderr
        eventually(lambda: StoredJob.objects.filter(queue__name="of_b", name="bservice.remind").count() >= 2)
        assert python("-m", "django", "migrate", env=subprocess_env).returncode == 0
        assert RecurringTask.objects.get().enabled, "the other service's migrate"
        assert "not enqueued" not in python("-m", "django", "leasequeue_status", env=subprocess_env).stdout
