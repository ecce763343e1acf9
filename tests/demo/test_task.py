from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from django_leasequeue.engine.clock import Clock, hold
from testproject.demo.figures import progress, summarise
from testproject.demo.management.commands.demo import prepare
from testproject.demo.models import SourceReport
from testproject.demo.tasks import report_source
from tests.tasks.helpers import run_one

pytestmark = pytest.mark.django_db


def test_a_report_is_stored_once_however_often_the_task_runs(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text("import os\n\ndef one():\n    pass\n")
    for _ in range(2):
        result = report_source.enqueue(str(path))
        assert run_one("demo") == "completed"
    result.refresh()
    assert result.return_value == {"lines": 4, "functions": 1, "classes": 0}
    report = SourceReport.objects.get()
    assert (report.path, report.lines, report.imports, report.attempt) == (str(path), 4, ["os"], 1)
    assert report.waited_ms >= 0
    assert report.took_ms > 0


def test_a_run_is_summed_up(tmp_path: Path) -> None:
    queue = prepare()
    since = timezone.now()
    summary = summarise(queue, since)
    assert (summary.completed, summary.per_second, summary.wait, summary.dead) == (0, 0.0, (0.0, 0.0), [])
    for name, text in (("good.py", "x = 1\n"), ("bad.py", "def (\n"), ("worse.py", "class (\n"), ("other.py", "'\n")):
        (tmp_path / name).write_text(text)
        report_source.enqueue(str(tmp_path / name))
    with hold(Clock(timezone.now())) as clock:
        while run_one("demo") is not None or progress(queue, since).left:
            clock.advance(seconds=10)
    now = progress(queue, since)
    assert (now.completed, now.dead, now.ended, now.left) == (1, 3, 4, 0)
    summary = summarise(queue, since)
    assert (summary.completed, summary.lines, summary.retries) == (1, 1, 6)
    assert summary.seconds > 0
    # One cause, one group, whatever the file is called.
    assert [group.count for group in summary.dead] == [2, 1]
    assert {group.error_type for group in summary.dead} == {"builtins.SyntaxError"}


def test_preparing_clears_what_an_earlier_run_left(tmp_path: Path) -> None:
    queue = prepare()
    report_source.enqueue("waits")
    report_source.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("waits longer")
    report_source.using(max_attempts=1, priority=1).enqueue(str(tmp_path / "missing.py"))
    assert run_one("demo") == "dead"
    assert prepare() == queue
    now = progress(queue, timezone.now())
    assert (now.left, now.dead) == (0, 0)
    assert not SourceReport.objects.exists()
    queue.refresh_from_db()
    assert (queue.max_deliveries, queue.backoff) == (3, "exponential")
