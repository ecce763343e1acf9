"""Moving the jobs of a jqueue file into a queue: files as jqueue 1.0 writes them."""

import asyncio
import base64
import fcntl
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection

from django_leasequeue import Queue, engine
from django_leasequeue.compat import jqueue_import
from django_leasequeue.compat.jqueue import DirectQueue
from django_leasequeue.compat.jqueue_import import LocalFile, Mark, open_file, read_state
from django_leasequeue.engine.clock import Clock
from django_leasequeue.exceptions import InvalidOption, QueueNotFound, StorageError
from django_leasequeue.models import OperatorAction
from tests.support.commands import said

from .objectserver import ObjectServer

pytestmark = [pytest.mark.django_db(transaction=True)]

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def job(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"id-{number}", "entrypoint": "send_email", "payload": base64.b64encode(bytes([number])).decode(),
        "status": "queued", "priority": 0,
        "created_at": (NOW - timedelta(hours=1) + timedelta(seconds=number)).isoformat().replace("+00:00", "Z"),
        "heartbeat_at": None, **fields,
    }  # fmt: skip


def running(number: int, age: timedelta) -> dict[str, Any]:
    return job(number, status="in_progress", heartbeat_at=(NOW - age).isoformat())


def content(*jobs: dict[str, Any]) -> bytes:
    return json.dumps({"jobs": jobs, "version": 7}, indent=2).encode()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def written(*jobs: dict[str, Any]) -> str:
        path = tmp_path / "queue.json"
        path.write_bytes(content(*jobs))
        return str(path)

    return written


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with ObjectServer() as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def keys(queue: str = "mail") -> list[str | None]:
    page = engine.run(engine.list_jobs(queue, size=1_000))
    return [row.key for row in page.jobs]


def command(url: str, *options: str, queue: str = "mail") -> list[str]:
    return said("leasequeue_import", "jqueue", url, queue, *options).splitlines()


def refused(url: str, says: str) -> None:
    before = Path(url).read_bytes()
    with pytest.raises(CommandError, match=says):
        command(url)
    assert Path(url).read_bytes() == before


@pytest.mark.usefixtures("clock")
class TestMove:
    def test_jobs_arrive_as_they_were(self, write: Callable[..., str]) -> None:
        long = "x" * 2_000
        url = write(
            job(1, priority=5), job(2), job(3, entrypoint="", payload="AP8="), job(4, entrypoint=long, priority=-5),
            running(5, timedelta(minutes=6)), job(6, status="dead"),
        )  # fmt: skip
        assert command(url) == [
            "Moved 5 jobs into mail; 0 were there already.",
            "1 of them were in progress: they run again.",
            "Left 1 dead jobs in the file.",
        ]
        assert keys() == ["id-4", "id-2", "id-3", "id-5", "id-1"]
        found = Queue("mail").claim(10)
        assert [row.lease.body for row in found] == [b"\x04", b"\x02", b"\x00\xff", b"\x05", b"\x01"]
        assert [row.lease.rank for row in found] == [-5, 0, 0, 0, 5]
        [line] = OperatorAction.objects.filter(action="import")
        assert (line.queue, line.counts) == ("mail", {"added": 5, "known": 0})

    @pytest.mark.usefixtures("native", "closed_pools")
    async def test_the_facade_finds_them(self, write: Callable[..., str]) -> None:
        file = LocalFile(Path(write(job(1), job(2, entrypoint="x" * 2_000), job(3, entrypoint=""))))

        def move() -> None:
            try:
                jqueue_import.move(file, Queue("mail", preset="jqueue"))
            finally:
                connection.close()

        await asyncio.to_thread(move)
        q = DirectQueue("mail")
        for name, number in (("send_email", 1), ("x" * 2_000, 2), ("", 3)):
            [found] = await q.dequeue(name, batch_size=5)
            assert (found.id, found.entrypoint, found.payload) == (f"id-{number}", name, bytes([number]))
            await q.ack(str(found.id))

    def test_the_file_keeps_its_jobs_and_a_second_call_moves_nothing(self, write: Callable[..., str]) -> None:
        url = write(job(1), job(2))
        before = Path(url).read_bytes()
        command(url)
        after = Path(url).read_bytes()
        assert after.startswith(before)
        with pytest.raises(json.JSONDecodeError):  # it is no state any more
            json.loads(after)
        state = read_state(after)
        assert (state.done, [found.id for found in state.jobs]) == (True, ["id-1", "id-2"])
        Queue("mail").ack(Queue("mail").claim()[0])
        assert command(url) == ["Nothing to do: the 2 jobs were moved before."]
        assert keys() == ["id-2"]

    def test_dry_run(self, write: Callable[..., str]) -> None:
        url = write(job(1), running(2, timedelta(minutes=6)))
        before = Path(url).read_bytes()
        assert command(url, "--dry-run") == [
            "would move 2 jobs into mail",
            "1 of them were in progress: they run again.",
        ]
        assert Path(url).read_bytes() == before
        with pytest.raises(QueueNotFound):
            keys()

    def test_an_empty_state_and_jobs_that_are_there_already(self, write: Callable[..., str]) -> None:
        assert command(write()) == ["Moved 0 jobs into mail; 0 were there already."]
        Queue("mail", preset="jqueue").enqueue(b"mine", key="id-1")
        assert command(write(job(1), job(2))) == ["Moved 1 jobs into mail; 1 were there already."]
        assert keys() == ["id-1", "id-2"]

    def test_running_jobs_are_moved_only_when_asked(self, write: Callable[..., str]) -> None:
        url = write(job(1), running(2, timedelta(minutes=4)))
        refused(url, "1 jobs are in progress")
        assert command(url, "--in-progress")[0] == "Moved 2 jobs into mail; 0 were there already."

    @pytest.mark.parametrize(("fields", "says"), [
        ({"priority": 40_000}, "priority"),
        ({"payload": base64.b64encode(bytes(16 * 1024 * 1024 + 1)).decode()}, "16777216"),
        ({"entrypoint": "a\x00b"}, "entrypoint"),
        ({"id": "x" * 1_025}, "id of a job"),
        ({"status": "lost"}, "not the state of a jqueue"),
        ({"created_at": "2030-01-01T12:00:00"}, "not the state of a jqueue"),
        ({"priority": "5"}, "not the state of a jqueue"),
    ])  # fmt: skip
    def test_what_cannot_be_kept_is_refused(self, fields: dict[str, Any], says: str, write: Callable[..., str]) -> None:
        refused(write(job(1), job(2, **fields)), says)

    def test_files_that_are_none(self, tmp_path: Path) -> None:
        for text in (b"", b"[]", b"{", b'{"jobs": 5}', b"\xff", b'{"jobs": [5]}'):
            (tmp_path / "queue.json").write_bytes(text)
            refused(str(tmp_path / "queue.json"), "not the state of a jqueue")
        with pytest.raises(CommandError, match="cannot be read"):
            command(str(tmp_path / "missing.json"))
        for url in ("ftp://a/b", "s3://bucket", "s3:///key"):
            with pytest.raises(CommandError, match="must"):
                command(url)

    def test_urls_of_files(self, write: Callable[..., str], tmp_path: Path) -> None:
        write(job(1))
        (tmp_path / "a b").mkdir()
        (tmp_path / "queue.json").rename(tmp_path / "a b" / "queue.json")
        assert command(f"file://{tmp_path}/a%20b/queue.json")[0].startswith("Moved 1 jobs")

    def test_begun_for_another_queue(self, write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
        url = write(job(1))
        with monkeypatch.context() as patched:
            patched.setattr(jqueue_import, "_add", _killed)
            with pytest.raises(KeyboardInterrupt):
                command(url)
        for options in (["--dry-run"], []):
            with pytest.raises(CommandError, match="'mail'"):
                command(url, *options, queue="other")
        with pytest.raises(CommandError, match="'mail'"):
            command(url, "--project", "acme")
        assert command(url)[0] == "Moved 1 jobs into mail; 0 were there already."


def _killed(*args: Any, **kwargs: Any) -> Any:
    raise KeyboardInterrupt


class TestOthers:
    def test_a_write_in_between_is_seen(self, write: Callable[..., str], monkeypatch: Any, clock: Clock) -> None:
        url = write(job(1))
        checked = jqueue_import._check
        writes = iter([content(job(1), job(2)), content(job(2), job(3))])

        def check(*args: Any) -> None:
            checked(*args)
            if (new := next(writes, None)) is not None:
                Path(url).write_bytes(new)

        monkeypatch.setattr(jqueue_import, "_check", check)
        command(url)
        assert keys() == ["id-2", "id-3"]

    def test_writers_without_end(self, write: Callable[..., str], monkeypatch: Any, clock: Clock) -> None:
        url = write(job(1))
        monkeypatch.setattr(LocalFile, "write", lambda *_: False)
        with pytest.raises(CommandError, match="stop them"):
            command(url)
        with pytest.raises(QueueNotFound):
            keys()

    def test_the_lock_of_jqueue_is_respected(self, write: Callable[..., str]) -> None:
        path = Path(write(job(1)))
        file = LocalFile(path)
        content, version = file.read()
        with path.open("r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with ThreadPoolExecutor(1) as thread:
                writing = thread.submit(file.write, content + b"\n", version)
                with pytest.raises(TimeoutError):
                    writing.result(0.3)
                held.write(b" " * 3)
                held.flush()
                fcntl.flock(held, fcntl.LOCK_UN)
                assert writing.result(30) is False

    def test_a_broken_mark_does_not_count(self, write: Callable[..., str], clock: Clock) -> None:
        url = write(job(1), job(2))
        path = Path(url)
        whole = path.read_bytes()
        queue = Queue("mail", preset="jqueue")
        marked = read_state(whole).marked(Mark("1", jqueue_import._database(queue), "", "mail"))
        for length in range(len(whole), len(marked) - 2, 9):
            path.write_bytes(marked[:length])
            state = read_state(path.read_bytes())
            assert (state.mark, len(state.jobs)) == (None, 2)
        command(url)
        assert path.read_bytes().startswith(whole)
        assert keys() == ["id-1", "id-2"]


#: Imports, and is killed where it is told.
IMPORT = """
import os, sys
import django
django.setup()
from django.core.management import call_command
from django_leasequeue.compat import jqueue_import

url, where = sys.argv[1:3]

def end(*args, **kwargs):
    print("killed", flush=True)
    os.kill(os.getpid(), 9)

writes = 0
for kind in (jqueue_import.LocalFile, jqueue_import.ObjectFile):
    def write(self, content, version, write=kind.write):
        global writes
        writes += 1
        if where == f"before write {writes}":
            end()
        done = write(self, content, version)
        if where == f"after write {writes}":
            end()
        return done
    kind.write = write
if where == "before commit":
    jqueue_import.audit.write = end
call_command("leasequeue_import", "jqueue", url, "mail", "--in-progress")
print("done", flush=True)
"""


class TestKilled:
    def run(self, environment: dict[str, str], url: str, where: str = "-") -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", IMPORT, url, where]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    @pytest.mark.slow
    @pytest.mark.parametrize(("where", "bucket"), [
        ("before write 1", ""), ("after write 1", ""), ("before commit", ""), ("before write 2", ""),
        ("after write 2", ""), ("after write 1", "bucket"), ("before write 2", "bucket"),
    ])  # fmt: skip
    def test_each_job_arrives_once(
        self, where: str, bucket: str, write: Callable[..., str], server: ObjectServer, subprocess_env: dict[str, str]
    ) -> None:
        url = f"s3://{bucket}/queue.json" if bucket else write(*map(job, range(5)))
        server.objects[f"/{bucket}/queue.json"] = content(*map(job, range(5)))
        with self.run({**subprocess_env, **server.environment}, url, where) as process:
            assert process.communicate(timeout=120)[0] == "killed\n"
        arrived = keys() if where.endswith("write 2") else []
        assert len(arrived) == (5 if where.endswith("write 2") else 0)
        queue = Queue("mail", preset="jqueue")
        # What ends in between does not come again.
        done = [str(queue.ack(found).key) for found in queue.claim(2)] if arrived else []
        for _ in range(2):
            command(url)
        assert sorted([*done, *(str(key) for key in keys())]) == [f"id-{number}" for number in range(5)]

    @pytest.mark.slow
    def test_two_at_once(self, write: Callable[..., str], subprocess_env: dict[str, str]) -> None:
        url = write(*map(job, range(20)))
        with self.run(subprocess_env, url) as one, self.run(subprocess_env, url) as two:
            for process in (one, two):
                process.communicate(timeout=240)
        command(url)
        assert keys() == [f"id-{number}" for number in range(20)]


class TestObjects:
    def test_writes_are_conditional(self, server: ObjectServer) -> None:
        server.objects["/bucket/queue.json"] = content(job(1))
        file = open_file("s3://bucket/queue.json")
        before, version = file.read()
        server.objects["/bucket/queue.json"] = content(job(2))
        assert not file.write(before + b"\n", version)
        before, version = file.read()
        assert before == content(job(2))
        assert file.write(before + b"\n", version)
        assert server.objects["/bucket/queue.json"] == content(job(2)) + b"\n"

    def test_errors(self, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(StorageError, match=r"missing\.json cannot be read"):
            open_file("s3://bucket/missing.json").read()
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "obstore", None)
            with pytest.raises(InvalidOption, match="objects"):
                open_file("gs://bucket/queue.json")
