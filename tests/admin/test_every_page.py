"""What holds for every page of the admin, of whichever part: nothing inline, no id twice, a label for each field."""

import subprocess
import sys
from typing import Any
from uuid import uuid4

import pytest

from django_leasequeue import engine
from django_leasequeue.models import BulkOperation, Limit, Worker
from tests.admin.letters import bury, graves, worker
from tests.admin.pages import boss, look
from tests.engine.helpers import one, put
from tests.support.rows import rows

_NASTY = "<script>alert(1)</script><b onclick=alert(1) style='color:red'>\"'"


@pytest.fixture
def pages(db: None) -> list[tuple[str, list[Any]]]:
    """Each page with something on it that would like to be HTML."""
    queue = graves(project=_NASTY)
    failure = engine.Failure(_NASTY, _NASTY, _NASTY, "print")
    (dead,) = bury(1, project=_NASTY, failure=failure, key=_NASTY, name=_NASTY, tag="<i>", data={_NASTY: _NASTY})
    put(2, project=_NASTY)
    leased = one(project=_NASTY, node=_NASTY)
    at = engine.clock.now()
    running = [{"seq": leased.seq, "queue": _NASTY, "name": _NASTY, "seconds": 1}]
    worker(_NASTY, (_NASTY,), host=_NASTY, concurrency=1, running=running)
    operation = rows(BulkOperation).create(
        kind="discard", reason=_NASTY, project=_NASTY, queue="work", frozen_at=at, created_at=at, username=_NASTY
    )
    uid = uuid4()
    step = engine.Node("work", engine.NewJob({}, name=_NASTY), label=_NASTY)
    engine.run(engine.start_workflow([step], uid, project=_NASTY, name=_NASTY))
    engine.run(engine.set_limits([engine.LimitValues(_NASTY, concurrency=1)], project=_NASTY))
    return [
        ("overview", []), ("queue_changelist", []), ("queue_change", [queue]), ("queue_options", [queue]),
        ("job_changelist", []), ("job_change", [dead]), ("job_change", [leased.seq]), ("tasks", []),
        ("worker_changelist", []), ("worker_change", [Worker.objects.get().pk]),
        ("recurringtask_changelist", []), ("workflow_changelist", []), ("workflow", [uid]), ("limit_changelist", []),
        ("limit_change", [Limit.objects.get().pk]),
        ("deadletters", []), ("deadletters_list", []), ("deadletters_edit", [dead]), ("bulkoperation_changelist", []),
        ("bulkoperation_change", [operation.pk]), ("operatoraction_changelist", []), ("apikey_changelist", []),
    ]  # fmt: skip


@pytest.mark.slow
def test_no_page_needs_anything_inline(pages: list[tuple[str, list[Any]]]) -> None:
    client = boss()
    for name, args in pages:
        assert [attrs for tag, attrs in look(client, name, *args).tags if tag == "b"] == [], name


LONG = "9" * 4_400


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "query"), [
    ("job_changelist", {"q": LONG}), ("job_changelist", {"queue": LONG}), ("job_changelist", {"below": LONG}),
    ("workflow_changelist", {"below": LONG}), ("worker_changelist", {"q": LONG}),
])  # fmt: skip
def test_numbers_that_are_none(name: str, query: dict[str, str]) -> None:
    """Python reads no number of so many digits."""
    look(boss(), name, **query)


@pytest.mark.slow
def test_commands_do_not_load_the_http_doors_for_the_admin() -> None:
    """``django.contrib.admin`` imports our pages with every command: they bring no REST framework along."""
    program = """
import sys
from django.conf import settings
settings.configure(
    SECRET_KEY="x", USE_TZ=True, DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
    INSTALLED_APPS=[
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
        "django.contrib.messages", "django.contrib.postgres", "pgtrigger", "django_leasequeue",
    ],
)
import django
django.setup()
assert "django_leasequeue.admin.queues" in sys.modules
print(sorted(name for name in sys.modules if name.split(".")[0] in ("rest_framework", "drf_spectacular", "pyspark")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", ""), done.stderr
