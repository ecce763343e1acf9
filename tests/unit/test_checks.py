"""System checks, those of URLs as well: each is silent when all is right, and says what is wrong and what to do."""

import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.core import checks as django_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path, re_path
from pytest_django import DjangoDbBlocker

from django_leasequeue import Queue, engine
from django_leasequeue.checks import database
from django_leasequeue.checks import settings as checks
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import LeaseEvent, RecurringTask
from django_leasequeue.models.recurring import parse
from tests.support.databases import database_alias
from tests.support.environment import python
from tests.support.rows import rows

REPORT = "tests.reaper.recurring.tasks.report"


def found(**leasequeue: Any) -> list[django_checks.CheckMessage]:
    with override_settings(LEASEQUEUE=leasequeue):
        return checks.check_settings(None)


def ids(messages: list[django_checks.CheckMessage]) -> list[str | None]:
    for message in messages:
        assert message.hint, f"{message.id} says what to do"
    return [message.id for message in messages]


def only(messages: list[django_checks.CheckMessage]) -> django_checks.CheckMessage:
    (message,) = messages
    assert message.hint
    return message


def tells(messages: list[django_checks.CheckMessage], identity: str, *says: str, hint: str = "") -> None:
    """There is one message, of this check, which says this and what to do."""
    message = only(messages)
    assert message.id == f"leasequeue.{identity}"
    for words in says:
        assert words in message.msg
    assert hint in str(message.hint)


def test_all_is_right_as_it_is() -> None:
    assert checks.check_settings(None) == []
    assert checks.check_installation(None) == []
    assert checks.check_addresses(None) == []
    assert found(QUEUES={"a": {"preset": "codeq", "lease_ms": 3_000}}, RECURRING={}) == []


def test_django_runs_them() -> None:
    with override_settings(LEASEQUEUE={"QUEUE": {}, "MAX_PAGE": 0}):
        told = [message for message in django_checks.run_checks() if "LEASEQUEUE" in message.msg]
    assert ids(told) == ["leasequeue.E001", "leasequeue.E001"]


def test_settings_that_are_no_dict() -> None:
    with override_settings(LEASEQUEUE=[]):
        message = only(checks.check_settings(None))
        assert (message.id, message.msg) == ("leasequeue.E001", "LEASEQUEUE must be a dict; it is [].")
        assert database.check_databases(None, databases=["default"]) == []


def task_of(**given: Any) -> dict[str, Any]:
    return {"RECURRING": {"report": {"task": REPORT, **given}}}


#: Settings, the id of the check that tells of them, what it says, and where, or what to do.
WRONG: list[tuple[dict[str, Any], str, str, str]] = [
    ({"EVENT_RETENTION_DAY": 3}, "E001", "LEASEQUEUE has no setting 'EVENT_RETENTION_DAY'.",
     "Did you mean 'EVENT_RETENTION_DAYS'? There are ADMIN, API, "),
    ({"DATABASE": "queues"}, "E003", "'queues', which is not in DATABASES", ""),
    ({"DATABASE": "lite"}, "E004", "is SQLite; the queues need PostgreSQL", ""),
    *(({"ROUTER": path}, "E003", "", "") for path in ("no.such.router", "tests.unit.test_checks.REPORT", "nothing")),
    ({"QUEUES": {"hasty": {"lease_ms": 2_999}, "calm": {"lease_ms": 3_000},
                 "records": {"preset": "topics", "type": "log", "lease_ms": 100}}},
     "W011", "'hasty' has leases of 2999 ms", ""),
    *(({"QUEUES": {name: given}}, "E012", says, f"LEASEQUEUE['QUEUES'][{name!r}]") for name, given, says in (
        ("mail", {"lease": 5}, "'lease' is not an option"),
        ("mail", {"lease_ms": "5"}, "lease_ms must be an integer"),
        ("mail", {"preset": "celery"}, "'celery' is not a preset"),
        ("mail", {"dead_letter": "mail"}, "dead_letter must be another topic"),
        ("mail box", {}, "the name of a queue"),
    )),
    (task_of(schedule="61 * * * *"), "E014", "Bad minute", ""),
    (task_of(schedule="@daily", timezone="Mars/Olympus"), "E014", "timezone must be a name", ""),
    (task_of(), "E014", "'schedule' is missing", ""),
    (task_of(schedule="@daily", task=f"{REPORT}s_missing"), "E014", "task must be the path of a task", ""),
    (task_of(schedule="@daily", task="tests.reaper.recurring.tasks.plain"), "E014", "is none: decorate", ""),
    ({"WORKER": {"NODE": "x" * 200}}, "E016", "node must have at most 112 bytes", ""),
    ({"WORKER": {"DATABASE": "nowhere"}}, "E016", "database must be a PostgreSQL alias", ""),
    *(({"CONTEXT": {"RESTORE": "contextlib.nullcontext", **given}}, "E027", says, "LEASEQUEUE['CONTEXT']")
      for given, says in (
        ({"CAPTURE": "no.such.capture"}, "['CAPTURE'] is 'no.such.capture': No module named 'no'"),
        ({"CAPTURE": "contextlib.no_such"}, 'does not define a "no_such" attribute/class'),
        ({"RESTORE": "tests.unit.test_checks.REPORT"}, "['RESTORE'] is 'tests.unit.test_checks.REPORT': it is not"),
        ({"CAPTURE": "builtins.len", "RESTORE": None}, "CAPTURE is set"),
    )),
    ({"REAPER": {"INTERVALS": {"sweeping": 1}}}, "E016", "it has 'sweeping'", ""),
]  # fmt: skip


@pytest.mark.parametrize(("leasequeue", "identity", "says", "more"), WRONG)
def test_what_is_wrong_is_told(leasequeue: Any, identity: str, says: str, more: str, sqlite: None) -> None:
    message = only(found(**leasequeue))
    assert (message.id, says in message.msg) == (f"leasequeue.{identity}", True)
    assert more in f"{message.msg} {message.hint}"


def test_every_setting_that_is_wrong_is_told() -> None:
    messages = found(COUNT_CAP="10", API={"PROXIES": -1}, QUEUES={"mail": {"lease": 5}})
    assert ids(messages) == ["leasequeue.E001", "leasequeue.E001"], "what depends on other settings waits for them"
    assert messages[0].msg == "LEASEQUEUE['COUNT_CAP'] must be an integer, 0 or more; it is '10'."
    assert messages[0].hint == "The default is 100000."


@pytest.fixture
def sqlite() -> Iterator[None]:
    lite = {
        **connections.settings["default"], "ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": {},
    }  # fmt: skip
    with database_alias("lite", lite):
        yield


@pytest.mark.parametrize("opened", [False, True])
def test_calls_name_what_is_no_postgresql(sqlite: None, opened: bool, django_db_blocker: DjangoDbBlocker) -> None:
    mail = Queue("mail", using="lite")
    with django_db_blocker.unblock():
        if opened:
            connections["lite"].ensure_connection()
        for call in (partial(mail.enqueue, {}), mail.claim, async_to_sync(mail.aclaim), partial(connect, "lite")):
            with pytest.raises(ImproperlyConfigured, match=r"need PostgreSQL .* reached by sqlite"):
                call()


def test_psycopg2_and_a_runworker_of_anothers(monkeypatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("django.db.backends.postgresql.psycopg_any.is_psycopg3", False)
        tells(checks.check_installation(None), "E006", hint="psycopg[binary,pool]")
    monkeypatch.setattr(checks, "get_commands", lambda: {"runworker": "channels"})
    tells(checks.check_installation(None), "W010", "the command of 'channels'", hint="leasequeue_worker")


def test_pgtrigger_is_missing() -> None:
    without = [app for app in django_settings.INSTALLED_APPS if app != "pgtrigger"]
    program = (
        "import django; from django.conf import settings;"
        f"settings.configure(INSTALLED_APPS={without!r}, LEASEQUEUE={{}}); django.setup()"
    )
    done = python("-c", program)
    assert done.stderr.splitlines()[-1] == (
        "django.core.exceptions.ImproperlyConfigured: 'pgtrigger' is not in INSTALLED_APPS. Add it before"
        " 'django_leasequeue': its triggers guard the tables."
    )


def test_jobs_in_another_database_than_the_data() -> None:
    to_jobs: Any = lambda model, **_: "jobs" if ours(model._meta.app_label) else None  # noqa: E731
    with database_alias("jobs", django_settings.DATABASES["default"]):
        with override_settings(DATABASE_ROUTERS=[SimpleNamespace(db_for_read=to_jobs, db_for_write=to_jobs)]):
            message = only(found(DATABASE="jobs"))
            assert message.id == "leasequeue.W022"
            assert message.msg.startswith("Jobs are in 'jobs', your data in 'default': tasks wait for the commit of")
            assert "are rolled back" not in message.msg
            assert "even if the transaction" in only(found(DATABASE="jobs", ENQUEUE_AFTER_COMMIT_OF=None)).msg
            assert found(DATABASE="jobs", ENQUEUE_AFTER_COMMIT_OF="jobs") == []
        backend = "django_leasequeue.tasks.LeaseQueueBackend"
        with override_settings(TASKS={"default": {"BACKEND": backend, "OPTIONS": {"database": "jobs"}}}):
            assert ids(found()) == ["leasequeue.W022"]
        assert ids(found(ENQUEUE_AFTER_COMMIT_OF="gone")) == ["leasequeue.E003"]


def test_one_connection_string_for_several_databases() -> None:
    both: dict[str, Any] = {"DATABASES": ["default", "jobs"], "ENQUEUE_AFTER_COMMIT_OF": "jobs"}
    near = "postgresql:///near"

    def errors(**leasequeue: Any) -> list[django_checks.CheckMessage]:
        return [message for message in found(**leasequeue) if message.is_serious()]

    with database_alias("jobs", django_settings.DATABASES["default"]):
        says = "one connection string, and queues are in 2 databases: 'default', 'jobs'."
        hint = "'LISTEN_DSN': {'default': 'postgresql://...', 'jobs': 'postgresql://...'}"
        tells(errors(**both, LISTEN_DSN=near), "E026", says, hint=hint)
        tells(errors(WORKER={"DATABASE": "jobs"}, LISTEN_DSN=near), "E026", says)
        backend = {"BACKEND": "django_leasequeue.tasks.LeaseQueueBackend", "OPTIONS": {"database": "jobs"}}
        with override_settings(TASKS={"default": backend}):
            tells(errors(LISTEN_DSN=near), "E026", says)
        assert errors(LISTEN_DSN=near) == []
        for given in (None, "", {}, {"jobs": near}, {"default": "", "jobs": near}):
            assert errors(**both, LISTEN_DSN=given) == []
        tells(errors(**both, LISTEN_DSN={"job": near}), "E003", "LISTEN_DSN'] names 'job', which is not", hint="jobs")


@pytest.mark.parametrize(("asked", "answer", "text"), [
    ("db_for_write", lambda model, **_: "elsewhere" if model is LeaseEvent else None, "LeaseEvent in 'elsewhere'"),
    ("db_for_read", lambda model, **_: "replica" if ours(model._meta.app_label) else None, "in 'replica'"),
    ("allow_migrate", lambda db, label, **_: False if ours(label) else None, "no migration of"),
])  # fmt: skip
def test_routers_that_split_the_tables(asked: str, answer: Any, text: str) -> None:
    with override_settings(DATABASE_ROUTERS=[SimpleNamespace(**{asked: answer})]):
        tells(found(), "E008", text)
        assert found(ROUTER="tests.unit.test_checks.route") == [], "queues in several databases: theirs to decide"


def route(project: str, queue: str) -> str:
    return "default"


def ours(label: str) -> bool:
    return label == "leasequeue"


@pytest.mark.parametrize(("pool", "concurrency", "size"), [
    ({"max_size": 3}, 4, 3), (True, 5, 4), ({"min_size": 2}, 3, 2), ({"max_size": None, "min_size": 7}, 8, 7),
])  # fmt: skip
def test_a_pool_that_is_smaller_than_the_concurrency(monkeypatch, pool, concurrency, size) -> None:
    options = {**django_settings.DATABASES["default"].get("OPTIONS", {}), "pool": pool}
    monkeypatch.setitem(django_settings.DATABASES["default"], "OPTIONS", options)
    said = f"runs {concurrency} jobs at once", f"holds {size} connections"
    tells(found(WORKER={"CONCURRENCY": concurrency}), "W009", *said)
    assert found(WORKER={"CONCURRENCY": size}) == []


def test_cronsim_is_missing(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    parse.cache_clear()
    message = only(found(RECURRING={"report": {"task": REPORT, "schedule": "1 2 * * *"}}))
    assert (message.id, message.hint) == ("leasequeue.E015", 'pip install "django-leasequeue[cron]"')
    assert found(RECURRING={"report": {"task": REPORT, "schedule": "every hour"}}) == []


def asked(*databases: str) -> list[django_checks.CheckMessage]:
    return database.check_databases(None, databases=databases or ["default"])


@pytest.mark.django_db
class TestDatabase:
    def test_the_database_is_right_as_it_is(self) -> None:
        assert asked() == []
        assert asked("other") == []
        assert database.check_databases(None, databases=None) == []
        call_command("check", databases=["default"])

    def test_a_pooler_without_its_option(self, monkeypatch) -> None:
        class Info:
            backend_pid = -1  # a pooler tells a number of its own

        class Pooled:
            info = Info()

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

        real = connections["default"].connection
        monkeypatch.setattr(connections["default"], "connection", Pooled())
        (message,) = database._pooler("default")
        assert (message.id, "'DISABLE_SERVER_SIDE_CURSORS': True" in str(message.hint)) == ("leasequeue.W023", True)
        monkeypatch.setitem(connections["default"].settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
        assert list(database._pooler("default")) == []

    def test_a_server_that_is_too_old(self, monkeypatch) -> None:
        monkeypatch.setattr(database, "OLDEST_SERVER", 990_000)
        tells(asked(), "E005", "15 is the oldest")

    def test_events_in_the_default_partition(self) -> None:
        at = "2030-01-01T00:00:00Z"
        rows(LeaseEvent).create(id=10**12, txid=1, occurred_at=at, queue_id=1, low=1, high=1, seqs=[1], kind=1)
        tells(asked(), "W017", hint="EVENT_PARTITIONS_AHEAD")

    def test_settings_and_database_with_different_options(self, settings) -> None:
        settings.LEASEQUEUE = {"QUEUES": {"mail": {"lease_ms": 45_000, "preset": "codeq"}, "new": {}}}
        assert asked() == [], "what is missing is made by migrate"
        engine.run(engine.create("mail", preset="codeq", lease_ms=45_000))
        assert asked() == []
        engine.run(engine.configure("mail", preset="codeq", lease_ms=50_000, max_deliveries=9))
        tells(asked(), "W013", "mail: max_deliveries 9 -> 5, lease_ms 50000 -> 45000", hint="leasequeue_queues sync")
        settings.LEASEQUEUE = {"QUEUES": {"mail": {"lease_ms": 50_000}}}
        assert asked() == [], "what the settings do not name is the database's business"
        settings.LEASEQUEUE = {"QUEUES": {"mail": {"lease_ms": "x"}}}
        assert asked() == [], "the check of the settings tells that"

    def test_recurring_tasks_in_the_database_that_do_not_run(self) -> None:
        for name, schedule, enabled in (
            ("good", "@daily", True),
            ("bad", "nonsense", True),
            ("off", "nonsense", False),
        ):
            row = RecurringTask(name=name, schedule=schedule, task=REPORT, enabled=enabled)
            RecurringTask.objects.bulk_create([row])  # unchecked, as SQL may make it
        tells(asked(), "W018", "'bad'")

    def test_tables_that_are_missing_or_old_do_not_stop_migrate(self, monkeypatch) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(database, "APP", "absent")
            assert asked() == []
        with connections["default"].cursor() as cursor:
            cursor.execute("ALTER TABLE leasequeue_recurringtask DROP COLUMN schedule CASCADE")
        assert asked() == []


@pytest.mark.parametrize("backend", ["django_leasequeue.tasks.LeaseQueueBackend", "some.other.Backend"])
def test_the_backport_that_is_not_an_app(settings, backend: str) -> None:
    settings.TASKS = {"default": {"BACKEND": backend}}
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "django_tasks"]
    told = [message.id for message in checks.check_installation(None)]
    needed = django.VERSION < (6, 0) and backend.startswith("django_leasequeue.")
    assert told == (["leasequeue.W019"] if needed else [])


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


TOPICS = path("v0/", include("django_leasequeue.http.topics.urls"))
TRIAGE = path("v0/", include("django_leasequeue.http.triage.urls"))
ZAQAR = path("v1/", include("django_leasequeue.http.zaqar.urls"))


def hidden(*patterns: Any) -> Sequence[str]:
    urls = ModuleType("urls_of_a_host")
    urls.urlpatterns = list(patterns)  # type: ignore[attr-defined]  # what Django looks for
    with override_settings(ROOT_URLCONF=urls):
        found = checks.check_addresses(None)
    assert {message.id for message in found} <= {"leasequeue.W024"}
    assert all(message.hint for message in found)
    return [message.msg.split("'")[1] for message in found]


def test_what_stands_before_the_topics_or_elsewhere_is_reached_and_what_stands_behind_them_is_not() -> None:
    assert hidden(TRIAGE, path("v0/report", view), TOPICS, ZAQAR, path("v1/report", view), path("v01/", view)) == []
    assert hidden(TOPICS, path("v0/report", view), re_path(r"^v0/other$", view)) == ["v0/report", "v0/other$"]
    assert hidden(TOPICS, TRIAGE) == [
        "v0/dead-letters", "v0/dead-letters/groups", "v0/dead-letters/<str:seq>",
        "v0/dead-letters/<str:seq>/redrive", "v0/jobs", "v0/workflows/<str:workflow>",
        "v0/limits", "v0/paused-tasks", "v0/paused-tasks/<str:task>",
    ]  # fmt: skip
    assert hidden(path("queues/", include([TOPICS, path("v0/report", view)]))) == ["queues/v0/report"]


@pytest.mark.slow
def test_every_check_is_registered_when_django_has_started() -> None:
    """In a process of its own: here the tests have imported them."""
    script = (
        "import django; django.setup();"
        "from django.core.checks.registry import registry;"
        "print(*{check.__module__ for check in registry.get_checks(include_deployment_checks=True)})"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    done = python("-c", script, env=environment)
    ours = {f"django_leasequeue.checks.{module}" for module in ("database", "settings")}
    assert ours <= set(done.stdout.split()), done.stderr
