"""Schedules of Celery's beat as recurring tasks: rows of django-celery-beat, and objects as Celery has them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection

from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import OperatorAction, RecurringTask
from tests.reaper.recurring.support import NOON, REPORT, Looker
from tests.support.commands import said

pytestmark = pytest.mark.usefixtures("transactional_db", "clock")

TABLES = {
    "intervalschedule": "every int NOT NULL, period varchar(24) NOT NULL",
    "crontabschedule": """minute varchar(240) NOT NULL, hour varchar(96) NOT NULL, day_of_week varchar(64) NOT NULL,
        day_of_month varchar(124) NOT NULL, month_of_year varchar(64) NOT NULL, timezone varchar(63) NOT NULL""",
    "clockedschedule": "clocked_time timestamptz NOT NULL",
    "solarschedule": "event varchar(24) NOT NULL, latitude numeric(9, 6) NOT NULL, longitude numeric(9, 6) NOT NULL",
    "periodictask": """name varchar(200) NOT NULL UNIQUE, task varchar(200) NOT NULL, args text NOT NULL DEFAULT '[]',
        kwargs text NOT NULL DEFAULT '{}', queue varchar(200), exchange varchar(200), routing_key varchar(200),
        headers text NOT NULL DEFAULT '{}', priority int, expires timestamptz, expire_seconds int,
        one_off bool NOT NULL DEFAULT false, start_time timestamptz, enabled bool NOT NULL DEFAULT true,
        last_run_at timestamptz, total_run_count int NOT NULL DEFAULT 0, interval_id int, crontab_id int,
        clocked_id int, solar_id int""",
}
NIGHTLY = {"minute": "30", "hour": "2", "day_of_week": "*", "day_of_month": "*", "month_of_year": "*"}


class crontab(SimpleNamespace):  # noqa: N801  (Celery's name)
    """What Celery's class keeps of its arguments."""

    def __init__(self, tz: str | None = None, **fields: Any) -> None:
        given = {f"_orig_{name}": fields.get(name, "*") for name in NIGHTLY}
        super().__init__(**given, **({} if tz is None else {"tz": tz}))


def insert(table: str, **values: Any) -> int:
    names = ", ".join(values)
    with connection.cursor() as cursor:
        marks = ", ".join(["%s"] * len(values))
        text = f"INSERT INTO django_celery_beat_{table} ({names}) VALUES ({marks}) RETURNING id"
        cursor.execute(text, list(values.values()))
        return int(cursor.fetchone()[0])


def periodic(name: str, *, task: str = REPORT, **values: Any) -> None:
    """Insert a periodic task, nightly unless a schedule is given as ``table={column: value}``."""
    kinds = {kind: values.pop(kind) for kind in ("interval", "crontab", "clocked", "solar") if kind in values}
    for kind, schedule in (kinds or {"crontab": {**NIGHTLY, "timezone": "Europe/Berlin"}}).items():
        values[f"{kind}_id"] = insert(f"{kind}schedule", **schedule)
    insert("periodictask", name=name, task=task, **values)


@pytest.fixture
def tables(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        for name, columns in TABLES.items():
            cursor.execute(f"CREATE TABLE django_celery_beat_{name} (id serial PRIMARY KEY, {columns})")
    yield
    with connection.cursor() as cursor:
        for name in TABLES:
            cursor.execute(f"DROP TABLE django_celery_beat_{name}")


def imported(*options: str) -> str:
    return said("leasequeue_import", "celery-beat", *options)


def outcome(text: str, name: str) -> str:
    """Return the line of an entry."""
    return next(line for line in text.splitlines() if line.startswith(f"{name} "))


@pytest.mark.usefixtures("tables")
class TestTables:
    def test_every_field_has_its_place_here_and_a_second_import_changes_nothing(self) -> None:
        expires = datetime(2031, 1, 1, tzinfo=UTC)
        periodic("nightly", args='["a"]', kwargs='{"b": 1}', queue="default", priority=5, expires=expires)
        periodic("often", interval={"every": 90, "period": "minutes"}, expire_seconds=60, one_off=True)
        periodic("ran", interval={"every": 90, "period": "minutes"}, one_off=True, total_run_count=1)
        periodic("off", enabled=False, headers='{"x": 1}', exchange="e")
        dry = imported("--dry-run")
        assert dry.rstrip().endswith("4 new, 0 there already, 0 not imported. Nothing was written.")
        assert not RecurringTask.objects.exists()
        text = imported()
        assert text.rstrip() == dry.rstrip().removesuffix(" Nothing was written.")
        nightly, off, often, ran = RecurringTask.objects.order_by("name")
        assert (nightly.schedule, nightly.timezone, nightly.task) == ("30 2 * * *", "Europe/Berlin", REPORT)
        assert (nightly.args, nightly.kwargs, nightly.queue_name, nightly.priority) == (["a"], {"b": 1}, "default", 5)
        assert (nightly.until, nightly.times, nightly.enabled, nightly.from_settings) == (expires, None, True, False)
        assert (often.schedule, often.expires, often.times) == ("every 5400 seconds", 60, 1)
        assert (off.enabled, ran.enabled) == (False, False)
        assert "new, disabled, without exchange, headers" in outcome(text, "off")
        assert {line.action for line in OperatorAction.objects.all()} == {"add_recurring"}
        before = list(RecurringTask.objects.values())
        assert "0 new, 4 there already, 0 not imported." in imported()
        assert list(RecurringTask.objects.values()) == before
        assert OperatorAction.objects.count() == 4

    def test_one_that_was_changed_here_stays(self) -> None:
        periodic("nightly")
        imported()
        RecurringTask.objects.update(schedule="0 3 * * *", enabled=False)
        assert "there already, and stays; it differs in schedule, enabled" in outcome(imported(), "nightly")
        assert RecurringTask.objects.get().schedule == "0 3 * * *"

    def test_an_interval_goes_on_at_its_own_pace(self, clock: Clock) -> None:
        periodic("daily", interval={"every": 1, "period": "days"}, last_run_at=NOON - timedelta(hours=20))
        imported()
        Looker().look()
        assert RecurringTask.objects.get().next_tick_at == NOON + timedelta(hours=4)

    def test_a_clocked_one_runs_once_at_its_time(self, clock: Clock) -> None:
        periodic("once", clocked={"clocked_time": NOON + timedelta(days=40, seconds=7)}, one_off=True, args='["once"]')
        periodic("past", clocked={"clocked_time": NOON - timedelta(days=1)}, one_off=True)
        periodic("far", clocked={"clocked_time": NOON + timedelta(days=400)}, one_off=True)
        text = imported()
        assert "2 not imported" in text
        assert all("not imported: its time" in outcome(text, name) for name in ("past", "far"))
        looker = Looker()
        assert looker.look() == []
        clock.advance(days=40)
        assert looker.look() == []
        clock.advance(seconds=7)
        assert looker.look() == ["once"]
        clock.advance(days=366)
        assert looker.look() == ["once"]
        assert RecurringTask.objects.get().ended_at == NOON + timedelta(days=40, seconds=7)

    def test_a_task_may_have_another_path_here(self) -> None:
        periodic("nightly", task="reports.nightly")
        assert "not imported: The task 'reports.nightly' is not imported" in outcome(imported(), "nightly")
        assert "new" in outcome(imported("--map", f"reports.nightly={REPORT}"), "nightly")
        with pytest.raises(CommandError, match="--map takes OLD=NEW, two dotted paths; it is 'reports'"):
            imported("--map", "reports")

    @pytest.mark.parametrize(("values", "words"), [
        ({"solar": {"event": "sunset", "latitude": 1, "longitude": 1}}, "a solar schedule (sunset)"),
        ({"interval": {"every": 5, "period": "microseconds"}}, "schedule must be whole seconds"),
        ({"crontab": {**NIGHTLY, "day_of_week": "1", "day_of_month": "13", "timezone": "UTC"}}, "match both"),
        ({"crontab": {**NIGHTLY, "hour": "22-2", "timezone": "UTC"}}, "Bad hour"),
        ({"task": "celery.backend_cleanup"}, "Celery's own"), ({"args": "[1"}, "Expecting ',' delimiter"),
        ({"task": "tests.reaper.recurring.tasks.placed", "args": "[1]"}, "cannot be called so"),
        ({"queue": "nowhere-else", "priority": 255}, "priority"), ({"start_time": NOON + timedelta(1)}, "start_time"),
    ])  # fmt: skip
    def test_what_cannot_be_moved_is_listed_with_the_reason(self, values: dict[str, Any], words: str) -> None:
        periodic("bad", **values)
        periodic("good")
        text = imported()
        assert "not imported: " in outcome(text, "bad")
        assert words in outcome(text, "bad")
        assert "1 new, 0 there already, 1 not imported." in text
        assert RecurringTask.objects.get().name == "good"

    def test_tables_win_over_the_setting_that_beat_copied_into_them(self, settings: Any) -> None:
        settings.CELERY_BEAT_SCHEDULE = {"nightly": {"task": REPORT, "schedule": 60}}
        periodic("nightly")
        imported()
        assert RecurringTask.objects.get().schedule == "30 2 * * *"


class TestSetting:
    @pytest.mark.parametrize(("schedule", "text", "zone"), [
        (crontab(minute=30, hour="2,14"), "30 2,14 * * *", "Asia/Tokyo"),
        (crontab(tz="Europe/Berlin", minute={0, 30}, day_of_week="Monday-fri"), "0,30 * * * mon-fri", "Europe/Berlin"),
        (crontab(minute="*/15", month_of_year="jan, june"), "*/15 * * jan,jun *", "Asia/Tokyo"),
        (timedelta(minutes=5), "every 300 seconds", None), (30, "every 30 seconds", None),
        (30.0, "every 30 seconds", None), (SimpleNamespace(run_every=timedelta(hours=1)), "every 3600 seconds", None),
    ])  # fmt: skip
    def test_schedules_are_read(self, settings: Any, schedule: Any, text: str, zone: str | None) -> None:
        settings.CELERY_TIMEZONE = "Asia/Tokyo"
        settings.CELERY_BEAT_SCHEDULE = {"report": {"task": REPORT, "schedule": schedule}}
        assert "1 new" in imported()
        row = RecurringTask.objects.get()
        assert (row.schedule, row.timezone) == (text, zone or row.timezone)

    def test_arguments_and_options_are_read(self, settings: Any) -> None:
        options = {"queue": "default", "priority": 3, "expires": 45.0, "headers": {"a": 1}}
        report = {"task": REPORT, "schedule": 60, "args": (1,), "kwargs": {"b": 2}, "options": options}
        settings.CELERY_BEAT_SCHEDULE = {"report": report}
        assert "new, without headers" in outcome(imported(), "report")
        row = RecurringTask.objects.get()
        assert (row.args, row.kwargs, row.queue_name, row.priority, row.expires) == ([1], {"b": 2}, "default", 3, 45)

    @pytest.mark.parametrize(("entry", "words"), [
        ({"schedule": SimpleNamespace(event="sunset")}, "a schedule must be a crontab, seconds or a timedelta"),
        ({"schedule": 60, "options": {"expires": NOON}}, "expires must be whole seconds"), ({}, "schedule"),
    ])  # fmt: skip
    def test_what_cannot_be_read_is_listed(self, settings: Any, entry: dict[str, Any], words: str) -> None:
        settings.CELERY_BEAT_SCHEDULE = {"bad": {"task": REPORT, **entry}}
        line = outcome(imported(), "bad")
        assert "not imported" in line
        assert words in line

    def test_without_tables_and_setting_there_is_nothing_to_import(self) -> None:
        with pytest.raises(CommandError, match="no tables of django-celery-beat, and the settings no CELERY_BEAT"):
            imported()
