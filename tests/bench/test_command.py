"""The command: what it refuses, what it writes, and that it cleans up however it ends."""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_leasequeue import engine
from django_leasequeue.engine import NewJob, pool
from django_leasequeue.models import Queue, StoredJob
from testproject.bench.modes import MODES
from testproject.bench.options import PROJECT
from testproject.bench.sandbox import signs_of_production
from testproject.bench.sql import statement

SMALL = ("--size", "100", "--rounds", "1", "--verbosity", "0")


bench = partial(call_command, "leasequeue_bench")


@pytest.fixture
def debug(settings: Any) -> None:
    """As in development: nothing looks like production."""
    settings.DEBUG = True


@pytest.mark.parametrize(("arguments", "words"), [
    (["--modes", "claim,fly"], "fly is not a mode; the modes are enqueue, single"),
    (["--modes", ","], "nothing is not a mode"), (["--size", "99"], "from 100 to 1,000,000; it is 99"),
    (["--size", "many"], "'many' is not a whole number"), (["--rounds", "0"], "from 1 to 100; it is 0"),
    (["--json", "/nowhere/at/all.json"], "The report cannot be written"),
    (["--database", "other"], "There is no database 'other'"),
])  # fmt: skip
def test_bad_arguments_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words.replace("(", r"\(")):
        bench(*arguments)


@pytest.mark.slow
@pytest.mark.usefixtures("transactional_db", "debug")
def test_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    bench("--modes", "duplicate,claim", *SMALL, "--costs", "--json", str(file))
    shown = capsys.readouterr()
    assert "claim and ack, batches of 200, jobs/s" in shown.out
    for words in ("beside: UPDATE .. SKIP LOCKED, DELETE", "a job costs:", "4 targets reached"):
        assert words in shown.out
    report = json.loads(file.read_text())
    assert (report["format"], report["errors"]) == (1, {})
    assert report["options"] == {"using": "default", "size": 100, "rounds": 1, "modes": ["claim", "duplicate"]}
    assert report["environment"].keys() >= {"postgresql", "python", "django", "cpus", "load_before", "load_after"}
    figure = next(item for item in report["figures"] if item["name"] == "claim and ack, batches of 200")
    assert figure["target"] == "ratio >= 0.5"
    assert figure["met"] in (True, False)
    assert figure["ceiling"]["label"]
    assert len(figure["values"]) == len(figure["ceiling"]["values"]) == len(figure["ratios"]) == 1
    assert figure["costs"]["wal_bytes"] > 0


@pytest.mark.usefixtures("nothing_left", "debug")
def test_one_run_at_a_time_what_was_left_is_removed_and_json_is_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pool.connect("default") as other:
        other.execute(statement("lock"))
        with pytest.raises(CommandError, match="Another benchmark runs on this database"):
            bench("--modes", "claim", *SMALL)
    engine.run(engine.enqueue("claim-1", [NewJob(data=1)], project=PROJECT))
    with connection.cursor() as cursor:
        cursor.execute(statement("bare_create"))
    capsys.readouterr()
    bench("--modes", "duplicate", "--size", "100", "--rounds", "1", "--json", "-")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["figures"]
    assert "duplicate: one at a time" in shown.err


@pytest.mark.usefixtures("transactional_db")
def test_refuses_what_looks_like_production_and_jobs_of_others_stay(settings: Any) -> None:
    with pytest.raises(CommandError, match="This looks like production: DEBUG is off"):
        bench("--modes", "duplicate", *SMALL)
    bench("--modes", "duplicate", *SMALL, "--yes")
    settings.DEBUG = True
    engine.run(engine.enqueue("mail", [NewJob(data=1)]))
    assert signs_of_production("default") == ["there are jobs in its queues"]
    bench("--modes", "claim", *SMALL, "--yes")
    assert (StoredJob.objects.count(), Queue.objects.get().name) == (1, "mail")


@pytest.mark.usefixtures("nothing_left", "debug")
def test_modes_fail_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(MODES["claim"], "run", broken)
    file = tmp_path / "report.json"
    with pytest.raises(CommandError, match="Not every mode could be measured"):
        bench("--modes", "claim,duplicate", *SMALL, "--json", str(file))
    assert "The mode claim failed: RuntimeError: out of order" in capsys.readouterr().err
    report = json.loads(file.read_text())
    assert report["errors"] == {"claim": "RuntimeError: out of order"}
    assert [figure["mode"] for figure in report["figures"]] == ["duplicate"]


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.release)])
def test_an_interrupted_run_reports_and_cleans_up(number: signal.Signals, subprocess_env: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "django", "leasequeue_bench", "--yes", "--json", str(file)]
    with subprocess.Popen(
        [*command, "--modes", "claim,drain", *SMALL[:4]], env=subprocess_env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        # As at a terminal, however this run was started.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509  (nothing else runs yet)
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert next(line for line in process.stderr if "drain: 1 process" in line)
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "Interrupted" in errors
    report = json.loads(file.read_text())
    assert report["interrupted"] is True
    assert {figure["mode"] for figure in report["figures"]} == {"claim"}
