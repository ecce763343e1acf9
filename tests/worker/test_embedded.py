"""Workers inside web processes: they start and stop with the server, and never end its process."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured

from django_leasequeue import EmbeddedWorker, conf, with_worker
from django_leasequeue.conf import process
from django_leasequeue.engine import LeasedJob
from django_leasequeue.models import LiveJob, Worker
from django_leasequeue.worker import JobTimeout, embedded
from django_leasequeue.worker.fetcher import Fetcher
from tests.support.documents import blocks
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.worker.handlers import EMBEDDED, ScriptHandler, lines, times
from tests.worker.processes import Process, alive, children_of
from tests.worker.support import enqueue, ready, results, sleeping

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, work: str) -> Iterator[None]:
    """Embedded workers start in this test, and end with it."""
    monkeypatch.setattr(process.switches, "embedded", True)
    yield
    for left in embedded._embedded.clear():
        left.options = replace(left.options, drain_timeout=0.0)
        assert left.stop()


class Server:
    """The server's side of the lifespan protocol, with its event loop in a thread."""

    def __init__(self, application: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._to_come: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: list[str] = []

        async def send(message: dict[str, Any]) -> None:
            self._answers.append(message["type"].removeprefix("lifespan."))

        self.life = self._run(application({"type": "lifespan"}, self._to_come.get, send))

    def _run(self, coroutine: Any) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def ask(self, what: str) -> str:
        self._run(self._to_come.put({"type": f"lifespan.{what}"})).result(60)
        eventually(lambda: self._answers or self.life.done(), "it answers")
        if not self._answers:
            self.life.result()
        return self._answers.pop()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@contextmanager
def served(application: Any) -> Iterator[None]:
    with closing(Server(application)) as server:
        assert server.ask("startup") == "startup.complete"
        yield
        assert server.ask("shutdown") == "shutdown.complete"
        server.life.result(60)


def test_jobs_run_in_the_web_process_and_its_end_waits_for_them(on: None, notes: Path) -> None:
    sleeping(notes, 5, 0.3)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with served(with_worker(get_asgi_application(), **EMBEDDED)):
        eventually(lambda: times(notes, "start") >= 2 and Worker.objects.exists(), "two run")
        row = Worker.objects.get()
        assert row.node.endswith(":web")
        assert (row.pid, row.concurrency) == (os.getpid(), 2)
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert times(notes, "start") == times(notes, "end") == len(results())
    assert ready() == 5 - times(notes, "end")
    assert not Worker.objects.exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("leasequeue-job")]


def test_the_worker_lives_within_the_life_of_an_application_that_has_one(on: None) -> None:
    heard: list[tuple[str, bool]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for word in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{word}"
            runs = [each for each in threading.enumerate() if each.name == "leasequeue-embedded"]
            heard.append((word, bool(runs)))
            await send({"type": f"lifespan.{word}.complete"})

    with served(with_worker(application, **EMBEDDED)):
        eventually(Worker.objects.exists, "it runs")
    assert heard == [("startup", False), ("shutdown", False)]


@pytest.mark.parametrize("says", [True, False])
def test_no_worker_starts_for_an_application_that_fails_to(on: None, says: bool) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if says:
            await send({"type": "lifespan.startup.failed", "message": "no"})
        else:
            raise LookupError("no")

    with closing(Server(with_worker(application, **EMBEDDED))) as server:
        if says:
            assert server.ask("startup") == "startup.failed"
            server.life.result(60)
        else:
            with pytest.raises(LookupError):
                server.ask("startup")
    assert embedded._embedded.clear() == []


async def test_a_server_without_the_protocol_is_told_of_once(on: None, caplog: pytest.LogCaptureFixture) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None: ...

    serve: Any = with_worker(application, **EMBEDDED)
    for _ in range(2):
        await serve({"type": "http"}, None, None)
    assert caplog.text.count("does not send the lifespan protocol") == 1


async def test_requests_go_to_the_application() -> None:
    seen: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    await with_worker(application)({"type": "http"}, None, None)  # type: ignore[arg-type]
    assert seen == ["http"]


def test_none_starts_in_tests_where_nobody_asks_for_it(work: str) -> None:
    worker = EmbeddedWorker(**EMBEDDED)
    assert not worker.start()
    assert not worker.running
    assert worker.stop()


def test_a_process_has_one_and_may_have_another_after_its_end(on: None, caplog: pytest.LogCaptureFixture) -> None:
    first, second = EmbeddedWorker(**EMBEDDED), EmbeddedWorker(**EMBEDDED)
    assert first.start()
    assert first.start(), "it goes on"
    assert not second.start()
    assert "another one runs in this process" in caplog.text
    assert first.stop()
    assert second.start()
    enqueue({"do": "return", "json": "1"})
    eventually(lambda: len(results()) == 1, "the second takes jobs")
    assert second.healthy
    assert second.stop()
    assert not second.healthy


def test_a_worker_that_breaks_starts_again_and_the_process_goes_on(
    on: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, calls = Fetcher.run, []
    monkeypatch.setattr(embedded, "FIRST_PAUSE", 0.01)

    def run_or_break(self: Fetcher) -> None:
        calls.append(self)
        if len(calls) < 3:
            raise ZeroDivisionError("the test")
        run(self)

    monkeypatch.setattr(Fetcher, "run", run_or_break)
    worker = EmbeddedWorker(**EMBEDDED)
    assert worker.start()
    enqueue({"do": "return", "json": "1"})
    eventually(lambda: len(results()) == 1, "the third takes jobs")
    assert "starts again in 0.01 s" in caplog.text
    assert "starts again in 0.02 s" in caplog.text
    assert worker.stop()
    assert len(calls) == 3


class BreaksOnce(ScriptHandler):
    """Breaks the thread of the first job."""

    broke: ClassVar[list[int]] = []

    def failed(self, job: LeasedJob, error: BaseException) -> Any:
        if not self.broke:
            self.broke.append(job.seq)
            raise JobTimeout
        return super().failed(job, error)


def test_one_whose_job_breaks_its_thread_starts_again(on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "FIRST_PAUSE", 0.01)
    enqueue({"do": "raise"}, max_deliveries=2)
    worker = EmbeddedWorker(**{**EMBEDDED, "handler": f"{__name__}.BreaksOnce"})
    assert worker.start()
    eventually(lambda: LiveJob.objects.filter(state=3).exists(), "the second one takes the job")
    assert worker.stop()


def test_one_that_cannot_start_is_no_end_of_the_process_and_stops(on: None, caplog: pytest.LogCaptureFixture) -> None:
    worker = EmbeddedWorker(**{**EMBEDDED, "handler": "tests.worker.handlers.Absent"})
    assert worker.start()
    eventually(lambda: "cannot start" in caplog.text, "it says so")
    assert worker.running
    assert not worker.healthy
    assert worker.stop()


def test_one_that_an_operator_has_stopped_stays_off(on: None, caplog: pytest.LogCaptureFixture) -> None:
    worker = EmbeddedWorker(**EMBEDDED)
    assert worker.start()
    eventually(lambda: worker.healthy, "it runs")
    assert worker._worker is not None
    worker._worker.state.ask_stop("an operator asked for it")
    eventually(lambda: not worker.running, "it ends")
    assert "stays off until its process starts anew: an operator asked for it" in caplog.text


@pytest.mark.parametrize(("options", "said"), [
    ({"concurrency": 0}, r"The embedded worker\['CONCURRENCY'\] must be an integer, 1 to 1,000; it is 0\.$"),
    ({"threads": 2}, "threads is no option; .* takes ack_batch, .*concurrency, .*It got 2"),
    ({"processes": 2}, "processes is an option of runworker; .* takes ack_batch, .*concurrency, .*It got 2"),
    ({"health_port": 80}, "health_port is an option of runworker"),
    ({"database": "absent"}, "database must be a PostgreSQL alias of DATABASES; it is 'absent'"),
])  # fmt: skip
def test_an_option_that_is_not_allowed(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=said):
        with_worker(get_asgi_application(), **options)


def test_what_the_settings_give_to_runworker_does_not_reach_a_web_process(settings: Any) -> None:
    settings.LEASEQUEUE = {
        "WORKER": {"CONCURRENCY": 40, "PROCESSES": 4, "MAX_JOBS": 9, "NODE": "n", "HEALTH_PORT": 80, "PREFETCH": 7}
    }
    options = EmbeddedWorker().options
    assert (options.concurrency, options.coroutines, options.processes, options.max_jobs) == (2, 2, 1, 0)
    assert (options.node, options.health_port, options.prefetch) == ("", 0, 7)


def test_the_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {block.word.removeprefix("file="): block.text for block in blocks("how-to/embedded-worker.md")}
    uwsgi = ModuleType("uwsgidecorators")
    uwsgi.postfork = lambda function: function  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "uwsgidecorators", uwsgi)
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(EmbeddedWorker, "start", lambda self: started.append(self.options))
    names: dict[str, dict[str, Any]] = {name: {} for name in files if name.endswith(".py")}
    for name, held in names.items():
        exec(files[name], held)
    server = SimpleNamespace()
    names["gunicorn.conf.py"]["post_worker_init"](server)
    names["gunicorn.conf.py"]["worker_exit"](None, server)
    names["mysite/wsgi.py"]["start_worker"]()
    assert [options.concurrency for options in started] == [2, 2]
    assert callable(names["mysite/asgi.py"]["application"])
    held = names["mysite/settings.py"]["LEASEQUEUE"]
    assert conf.read(conf.Settings, held, "LEASEQUEUE").RUNSERVER_WORKER


# Real servers


@pytest.fixture
def serve(subprocess_env: dict[str, str], work: str) -> Iterator[Callable[..., Process]]:
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(closing(Process(subprocess_env, *arguments)))


def command_of(server: str, tmp_path: Path, workers: int = 1) -> tuple[str, ...]:
    """Return a command; gunicorn's workers are forked from a process that has loaded the application."""
    if server == "uvicorn":
        return "uvicorn", "tests.worker.embedded_asgi:application", "--port", str(free_port())
    conf = tmp_path / "conf.py"
    conf.write_text("from tests.worker.embedded_asgi import post_worker_init, worker_exit\npreload_app = True\n")
    options = ("-c", str(conf), "-b", f"127.0.0.1:{free_port()}", "--workers", str(workers))
    return "gunicorn", *options, "testproject.wsgi:application"


@pytest.mark.slow  # a server's process starts
@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_a_killed_server_s_jobs_run_again(
    serve: Callable[..., Process], tmp_path: Path, notes: Path, server: str
) -> None:
    command = command_of(server, tmp_path)
    sleeping(notes, 2, 60)
    killed = serve(*command)
    eventually(lambda: times(notes, "start") == 2, "two run")
    killed.close()  # SIGKILL
    serve(*command)
    eventually(lambda: times(notes, "start") == 3, "they run again, one by one: they are suspects")


@pytest.mark.slow  # a server's processes start
@pytest.mark.parametrize(("server", "workers"), [("uvicorn", 1), ("gunicorn", 2)])
def test_sigterm_lets_running_jobs_end_and_the_ready_ones_stay(
    serve: Callable[..., Process], tmp_path: Path, notes: Path, server: str, workers: int
) -> None:
    sleeping(notes, 8, 1.5)
    stopped = serve(*command_of(server, tmp_path, workers))
    eventually(lambda: times(notes, "start") >= 2 * workers and Worker.objects.count() == workers, "two run in each")
    serving = children_of(stopped.pid) if workers > 1 else [stopped.pid]
    assert sorted({pid for *_, pid in lines(notes)}) == serving, "none runs in the process that others are forked from"
    stopped.send(signal.SIGTERM)
    assert stopped.wait() in (0, -signal.SIGTERM), stopped.text
    assert times(notes, "start") == times(notes, "end") == len(results())
    assert ready() == 8 - times(notes, "end") > 0
    assert not Worker.objects.exists()


def by_runserver(*more: str) -> tuple[str, ...]:
    return "django", "runserver", str(free_port()), "--settings", "own_settings", *more


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings in which ``runserver`` runs jobs, too: a file that may change."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    file = tmp_path / "own_settings.py"
    worker = {"QUEUES": ["work"], "REAPER": False, "HANDLER": EMBEDDED["handler"]}
    own = {"RUNSERVER_WORKER": True, "WORKER": worker}
    file.write_text(f"from testproject.settings import *\n\nLEASEQUEUE = {own!r}\n")
    return file


@pytest.mark.slow  # a server's process starts
def test_runserver_lets_jobs_end(own_settings: Path, serve: Callable[..., Process], notes: Path) -> None:
    sleeping(notes, 1, 1)
    server = serve(*by_runserver("--noreload"))
    eventually(lambda: times(notes, "start") == 1, "it runs")
    server.send(signal.SIGINT)
    server.wait()
    assert lines(notes)[-1][1:] == ("end", server.pid)
    assert len(results()) == 1
    assert not Worker.objects.exists()


@pytest.mark.slow  # a server's processes start
def test_runserver_runs_jobs_where_it_serves_and_a_changed_file_lets_them_end(
    own_settings: Path, serve: Callable[..., Process], notes: Path
) -> None:
    sleeping(notes, 1, 2)
    server = serve(*by_runserver())
    eventually(lambda: times(notes, "start") == 1, "it runs")
    ((_, _, first),) = lines(notes)
    assert [first] == children_of(server.pid)

    def replaced() -> bool:
        os.utime(own_settings)  # the reloader may not have looked at the file yet
        return not alive(first)

    eventually(replaced, "the process is replaced", 60)
    assert len(results()) == 1
    enqueue({"file": str(notes)})
    eventually(lambda: times(notes, "end") == 2, "the next one runs jobs, too")
    assert [lines(notes)[-1][2]] == children_of(server.pid) != [first]
