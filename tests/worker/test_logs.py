"""Log lines: the level and the traceback of failures, JSON, and what mails to admins come of it."""

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.utils.log import DEFAULT_LOGGING, AdminEmailHandler

from django_leasequeue import engine
from django_leasequeue import signals as job_signals
from django_leasequeue.conf import loglines
from django_leasequeue.conf.loglines import LOGGERS
from django_leasequeue.models import LiveJob
from django_leasequeue.tasks.api import TASKS_LOGGER, task_signals
from django_leasequeue.tasks.handler import TaskHandler
from django_leasequeue.worker import ExitCode, Worker, load_options
from tests.support.heard import connected
from tests.support.waiting import eventually
from tests.tasks import samples
from tests.worker import rude_tasks as rude
from tests.worker.processes import Start
from tests.worker.support import burst, enqueue, results, working


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "django_leasequeue.jobs"]


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
def test_a_try_that_failed_is_a_warning_and_the_last_one_an_error(work: str, caplog: Any, in_loop: bool) -> None:
    enqueue({"do": "raise", "message": "no route", "async": in_loop}, max_deliveries=2)
    burst()
    while len(failures(caplog)) < 2:
        burst()
    first, last = failures(caplog)
    assert [first.levelno, last.levelno] == [logging.WARNING, logging.ERROR]
    for record in (first, last):
        assert record.exc_info is not None
        text = logging.Formatter().formatException(record.exc_info)
        assert text.startswith("Traceback")
        assert text.endswith("ValueError: no route")
        # The job's own frames, without those of the worker.
        assert "tests/worker/handlers.py" in text
        assert "worker/threads.py" not in text
    assert last.__dict__["error"] == "builtins.ValueError: no route"


def test_no_mail_to_admins(work: str, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Django mails each error of its own loggers; a dead letter is none, though Django says that a task failed."""
    settings.ADMINS = [("Admin", "admin@example.com")]
    mailing, tasks = AdminEmailHandler(), logging.getLogger(TASKS_LOGGER)
    mailing.setLevel(DEFAULT_LOGGING["handlers"]["mail_admins"]["level"])
    tasks.addHandler(mailing)
    try:
        samples.fail_for_good.using(queue_name="work").enqueue()
        with caplog.at_level(logging.INFO, TASKS_LOGGER):
            Worker(load_options(burst=True, reaper=False)).run()
    finally:
        tasks.removeHandler(mailing)
    assert mail.outbox == []
    assert [record.levelno for record in failures(caplog)] == [logging.ERROR]
    (line,) = [record for record in caplog.records if "FAILED" in record.getMessage()]
    assert (line.levelno, line.exc_info) == (logging.INFO, None)


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_every_line_is_json(work: str, start: Start) -> None:
    enqueue({"do": "raise", "give_up": True}, {"do": "noise"})
    worker = start("--json-logs")
    worker.says("Uncaught exception")
    worker.says("Job failed for good")
    worker.ends()
    found = objects(worker.text)
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in found)
    (failed,) = [line for line in found if line["logger"] == "django_leasequeue.jobs"]
    assert (failed["level"], failed["queue"], failed["key"], failed["delivery"]) == ("ERROR", "work", "0", 1)
    assert failed["traceback"].endswith("ValueError: asked to")
    by_logger = {line["logger"]: line for line in found}
    assert by_logger["some.library"]["message"] == "said by a library"
    assert ("beware" in by_logger["py.warnings"]["message"], by_logger["python"]["in_thread"]) == (True, "noisy")
    assert by_logger["python"]["traceback"].endswith("ZeroDivisionError: division by zero")


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "said"), [
    (("--concurrency", "0"), "CONCURRENCY"), (("--database", "nowhere"), "must be a PostgreSQL alias"),
])  # fmt: skip
def test_why_it_does_not_start_is_json_too(test_dsn: str, start: Start, arguments: tuple[str, ...], said: str) -> None:
    worker = start("--json-logs", *arguments)
    assert worker.wait() == 1
    (line,) = objects(worker.text)
    assert line["level"] == "CRITICAL"
    assert said in line["message"]


def test_log_lines_hold_their_fields() -> None:
    known = {"name": "django_leasequeue.worker", "levelname": "INFO", "msg": "Job done", "created": 0.0}
    entry = logging.makeLogRecord({**known, "seq": 7, "queue": "two words", "empty": "", "missing": None})
    assert loglines.TextFormatter().format(entry) == (
        '1970-01-01T00:00:00.000+00:00 INFO worker: Job done seq=7 queue="two words" empty=""'
    )
    assert json.loads(loglines.JSONFormatter().format(entry)) == {
        "time": "1970-01-01T00:00:00.000+00:00", "level": "INFO", "logger": "django_leasequeue.worker",
        "message": "Job done", "seq": 7, "queue": "two words", "empty": "",
    }  # fmt: skip


FORGED = "2026-01-01T00:00:00.000+00:00 CRITICAL worker: the queue is empty"


@pytest.mark.parametrize("formatter", [loglines.TextFormatter(), logging.Formatter("%(levelname)s %(message)s")])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r", "\v", "\x85", "\u2028"])
def test_an_error_s_text_forges_no_entry(formatter: logging.Formatter, ending: str) -> None:
    """Neither as an argument, nor as a field, nor in a traceback with its cause and notes."""
    error = ValueError(f"no route{ending}{FORGED}\x1b[2K")
    error.add_note(f"a note{ending}{FORGED}")
    error.__cause__ = KeyError(f"{ending}{FORGED}")
    for name in LOGGERS:
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record, lines=lines: lines.append(formatter.format(record))  # type: ignore[method-assign,misc]
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        try:
            logger.error("It failed: %s", error, exc_info=error, extra={"error": str(error)})
        finally:
            logger.removeHandler(handler)
        (entry,) = [line for line in lines[0].splitlines() if not line.startswith("  ")]
        assert "no route" in entry
        assert "\x1b" not in lines[0]
        assert lines[0].count("CRITICAL worker") >= 3, "it is still told"


def test_every_logger_of_ours_keeps_to_its_lines() -> None:
    named = re.compile(r'getLogger\("(django_leasequeue[^"]*)"\)')
    package = Path(loglines.__file__).parents[1]
    found = {name for file in package.rglob("*.py") for name in named.findall(file.read_text())}
    assert found | {loglines.LOGGER, loglines.JOBS.name} == set(LOGGERS)


class Away(logging.Handler):
    """A handler of a host whose service is away."""

    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__()
        self._kind = kind

    def emit(self, record: logging.LogRecord) -> None:
        raise self._kind


@pytest.mark.parametrize("kind", [ConnectionError, SystemExit])
def test_logging_that_raises_costs_lines_and_no_job(work: str, kind: Any, capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(logging.getLogger(loglines.LOGGER), "handlers", [Away(kind)])
    enqueue({"do": "raise"}, {"async": True, "do": "raise"}, {}, max_deliveries=1)
    with working() as threaded:
        eventually(lambda: results() == {"2": 1} and LiveJob.objects.filter(state=3).count() == 2, "all have ended")
        assert threaded.stop() is ExitCode.OK
    lost = f"ERROR django_leasequeue.jobs: Job is dead after its last try (logging raised {kind.__name__})\n"
    assert capfd.readouterr().err.count(lost) == 2


def test_what_code_beside_a_job_raises_costs_no_job(work: str, caplog: pytest.LogCaptureFixture) -> None:
    bad = rude.fail_unshown.using(queue_name="work").enqueue()
    echoes = (samples.echo, samples.aecho, rude.echo_two, rude.echo_two)
    good = [each.using(queue_name="work", max_attempts=1).enqueue("word") for each in echoes]
    (interrupts,) = engine.run(engine.enqueue("work", [engine.NewJob(name="tests.tasks.module_that_interrupts.add")]))
    with ExitStack() as stack:
        for signal in (
            job_signals.started, job_signals.completed, job_signals.failed, task_signals.task_started,
            task_signals.task_finished,
        ):  # fmt: skip
            stack.enter_context(connected(signal, rude.exits))
        assert burst(TaskHandler()).code is ExitCode.OK
    for result in (bad, *good):
        result.refresh()
    assert [result.return_value for result in good] == ["word"] * 4
    assert [error.exception_class for error in bad.errors] == [rude.Unshown]
    assert LiveJob.objects.get(seq=interrupts.seq).deliveries == 0
    assert "(its traceback cannot be shown: KeyboardInterrupt)" in caplog.text


def test_what_commands_print_is_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    loglines.LogStream(logging.WARNING).write(f"two\n\n{FORGED}\n")
    assert [record.getMessage() for record in caplog.records] == ["two", FORGED]


@pytest.fixture
def _loggers_stay() -> Iterator[None]:
    """What the set-up of logs changes is as before afterwards."""
    logging.getLogger("host.app")  # which is there from now on
    named = [each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    loggers = [logging.getLogger(), *named]
    before = [(logger, list(logger.handlers), logger.propagate, logger.level) for logger in loggers]
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    yield
    logging.captureWarnings(False)
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    for logger, handlers, propagate, level in before:
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.setLevel(level)


@pytest.mark.usefixtures("_loggers_stay")
def test_handlers_of_the_host_stay() -> None:
    logger, host, root = (logging.getLogger(name) for name in ("django_leasequeue", "host.app", ""))
    own, elsewhere, terminal = logging.NullHandler(), logging.NullHandler(), logging.StreamHandler()
    logger.handlers[:], logger.propagate = [own], True
    logger.setLevel(logging.NOTSET)
    loglines.set_up_logging(as_json=False, verbosity=1)
    assert (logger.handlers, logger.level) == ([own], logging.NOTSET)
    host.handlers[:], host.propagate = [elsewhere, terminal], False
    logger.handlers[:] = []
    loglines.set_up_logging(as_json=True, verbosity=2)
    assert logger.level == logging.DEBUG
    assert elsewhere in host.handlers, "it goes elsewhere than to the terminal"
    assert terminal not in host.handlers
    for each in (host, root):
        assert any(isinstance(handler.formatter, loglines.JSONFormatter) for handler in each.handlers)
