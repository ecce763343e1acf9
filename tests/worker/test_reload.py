"""``runworker --reload``: the worker of development starts anew when the code changes."""

import signal
from contextlib import suppress
from pathlib import Path

import pytest

from django_leasequeue import engine
from django_leasequeue.models import JobResult, LiveJob, Worker
from django_leasequeue.worker import process
from tests.support.waiting import eventually
from tests.worker.processes import Start, WorkerProcess, children_of

HANDLER = """
from tests.worker.handlers import ScriptHandler, note

class Handler(ScriptHandler):
    def run(self, job, control):
        note(job, {word!r})
        return super().run(job, control)
"""


@pytest.fixture
def code(tmp_path: Path, subprocess_env: dict[str, str]) -> Path:
    """A module that the worker loads its handler from; its settings are in a module beside it."""
    subprocess_env["PYTHONPATH"] = f"{tmp_path}:{subprocess_env.get('PYTHONPATH', '')}"
    subprocess_env["DJANGO_SETTINGS_MODULE"] = "own_settings"
    (tmp_path / "own_settings.py").write_text("from testproject.settings import *\n")
    path = tmp_path / "reloaded.py"
    path.write_text(HANDLER.format(word="old"))
    return path


@pytest.fixture
def start(code: Path, start: Start) -> Start:
    return start


def enqueue(key: str, path: Path, **data: object) -> None:
    engine.run(engine.enqueue("work", [engine.NewJob({"file": str(path), **data}, key=key)]))


def change(code: Path, text: str, worker: WorkerProcess, said: str, times: int) -> None:
    """Change the code until the worker has noticed: its watcher knows only files that it has seen before."""
    for number in range(75):
        code.write_text(text + "\n" * number)
        with suppress(AssertionError):
            return worker.says(said, times, seconds=4)
    raise AssertionError(f"it never said {said!r} {times} times:\n{worker.text}")


@pytest.mark.slow
def test_a_change_starts_it_anew_and_a_signal_ends_it(work: str, start: Start, code: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    worker = start("--reload", "--handler", "reloaded.Handler")
    enqueue("first", notes)
    eventually(lambda: notes.exists() and "first old" in notes.read_text(), "the old code runs")
    before = Worker.objects.values_list("pid", flat=True)
    eventually(lambda: len(before.all()) == 1, "it says that it is there")
    (old,) = before.all()
    change(code, HANDLER.format(word="new"), worker, "Worker started", 2)
    enqueue("second", notes)
    eventually(lambda: "second new" in notes.read_text(), "the new code runs")
    assert old not in children_of(worker.pid)
    enqueue("long", notes, do="wait")
    eventually(lambda: "long start" in notes.read_text(), "it runs")
    worker.ends()
    assert worker.text.count("Worker stopped") == worker.text.count("Worker started") >= 2
    assert not Worker.objects.exists()
    assert JobResult.objects.filter(state=1).count() == 2
    assert LiveJob.objects.filter(state=0).count() == 1, "a running job is given back"


def test_a_signal_that_finds_it_leaving_for_a_change_ends_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Child:
        """A process that has ended for a change when the signal comes."""

        def __init__(self, *_: object, **__: object) -> None: ...

        def send_signal(self, number: int) -> None:
            assert number == signal.SIGTERM

        def wait(self) -> int:
            signal.raise_signal(signal.SIGTERM)
            return process.CHANGED

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(process.subprocess, "Popen", Child)
    monkeypatch.setattr(process.autoreload, "get_child_arguments", lambda: ["worker"])
    try:
        assert process._start_again_and_again() == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), [
    ("reloaded.py", "SyntaxError"), ("own_settings.py", "could not start"),
], ids=["what the worker loads", "what every process loads"])  # fmt: skip
def test_code_that_is_broken_is_waited_for(work: str, start: Start, tmp_path: Path, name: str, said: str) -> None:
    broken = tmp_path / name
    good = broken.read_text()
    worker = start("--reload", "--handler", "reloaded.Handler")
    worker.says("Worker started")
    change(broken, "this is no Python", worker, said, 1)
    change(broken, good, worker, "Worker started", 2)
    worker.ends()
