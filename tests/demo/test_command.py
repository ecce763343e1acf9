"""The whole demo, as ``make demo`` runs it: a worker in processes of its own, on a handful of files."""

import itertools
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings

from tests.support.waiting import eventually

#: Of the task of several steps: its first worker was killed in the second one.
STEPS = [("count", 1), ("write", 2), ("event", 2), ("cool off", 2)]
MANAGE = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), "demo"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Five files of Python and two that are none."""
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
