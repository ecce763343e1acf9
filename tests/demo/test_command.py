"""The whole demo, as ``make demo`` runs it, on a handful of files; and its task and figures by themselves."""

import itertools
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.utils import timezone

from django_leasequeue.engine.clock import Clock, hold
from testproject.demo.figures import progress, summarise
from testproject.demo.management.commands.demo import prepare
from testproject.demo.models import SourceReport
from testproject.demo.tasks import report_source
from tests.support.waiting import eventually
from tests.tasks.helpers import run_one

pytestmark = pytest.mark.django_db

#: Of the task of several steps: its first worker was killed in the second one.
STEPS = [("count", 1), ("write", 2), ("event", 2), ("cool off", 2)]
MANAGE = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), "demo"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for number in range(5):
        (tmp_path / f"good{number}.py").write_text(f"import os\n\ndef number():\n    return {number}\n")
    (tmp_path / "bad.py").write_text("def (\n")
    (tmp_path / "worse.py").write_text("class (\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.sample
def test_it_ends_by_itself_with_a_table(files: Path, subprocess_env: dict[str, str]) -> None:
    env = {**subprocess_env, "DEMO_PATH": str(files), "DEMO_EXIT": "1"}
    command = [*MANAGE, "--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.stdout.startswith("This demo enqueues a job for each of 7 Python files")
    assert "Then it ends." in done.stdout
    assert f"7 Python files below {files}, a job each, enqueued in" in done.stdout
    assert {"jobs done 5", "lines, functions 20, 5", "retries 4", "dead letters 2"} <= set(rows)
    assert any(row.startswith("2 builtins.SyntaxError: invalid syntax") for row in rows)
    assert ("7/7" in done.stdout, rows[-4:]) == (True, [f"{name} in delivery {number}" for name, number in STEPS])


@pytest.mark.slow
def test_it_serves_the_admin_until_it_is_told_to_end(files: Path, subprocess_env: dict[str, str]) -> None:
    env = {**subprocess_env, "DEMO_PATH": str(files), "PORT": "8731"}
    env.pop("DEMO_EXIT", None)
    command, out = [*MANAGE, "--processes", "1"], subprocess.PIPE
    with subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True, env=env) as serving:
        try:
            assert serving.stdout is not None
            text = "".join(itertools.takewhile(lambda line: not line.startswith("Ctrl-C"), serving.stdout))
            address = re.search(r"(http://127\.0\.0\.1:\d+/admin/)   \(login demo, password demo\)", text)
            assert address, text
            assert "admin" in eventually(lambda: _page(address[1]), "the page is served")
            children = psutil.Process(serving.pid).children(recursive=True)
            assert children
            serving.send_signal(signal.SIGINT)
            rest, _ = serving.communicate(timeout=300)
            assert ("Stopped." in rest, serving.returncode) == (True, 0)
            assert psutil.wait_procs(children, timeout=300)[1] == []
        finally:
            serving.terminate()


def _page(address: str) -> str:
    with suppress(OSError), urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "says"), [("missing", "is not a directory"), (".", "There is no Python file below")])
def test_a_directory_without_work_is_refused(name: str, says: str, tmp_path: Path, subprocess_env: Any) -> None:
    env = {**subprocess_env, "DEMO_PATH": str(tmp_path / name)}
    done = subprocess.run(MANAGE, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert (done.returncode, says in done.stderr) == (1, True)
    assert "DEMO_PATH=" in done.stderr


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
