"""The workers of ``docs/how-to/external-workers.md`` and the files that it names, run as they stand there."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from django_leasequeue.client import Client, Record
from django_leasequeue.models import JobStep
from tests.http.servers import Server, committed_key, serving
from tests.support.documents import DOCS, blocks
from tests.support.environment import child_environment
from tests.support.waiting import eventually

PAGE, DURABLE = "how-to/external-workers.md", "how-to/durable-tasks-http.md"
TOPIC = "thumbnails"

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]


@pytest.fixture(scope="module")
def servers(test_database_url: str) -> Iterator[list[Server]]:
    yield from serving(child_environment(test_database_url), 1, api={"ACCESS": "keys"})


@pytest.fixture
def env(server: Server) -> dict[str, str]:
    """The environment of a reader who did what stands before the examples, with short leases."""
    return {
        **os.environ, "LEASEQUEUE_URL": server.address,
        "LEASEQUEUE_TOKEN": committed_key("read", "write", topics=[TOPIC]), "LEASE_MS": "6000", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip


@pytest.fixture
def boss(server: Server) -> Iterator[Client]:
    token = committed_key("read", "write", "admin", "delete")
    with Client(server.address, token) as client:
        yield client
        client.delete_topic(TOPIC)
        client.delete_topic(f"{TOPIC}.dead")


@pytest.fixture
def queue(boss: Client, env: dict[str, str]) -> None:
    """The queue, made by the page's own commands; its first job is in it."""
    (commands,) = [block for block in blocks(PAGE) if block.language == "sh" and not block.word]
    token = committed_key("read", "write", "admin")
    subprocess.run(["sh", "-ec", commands.text], env={**env, "LEASEQUEUE_TOKEN": token}, check=True)
    assert boss.get_topic(TOPIC)["count"] == 1


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def program_of(page: str, name: str) -> str:
    """Return a worker: the page's own block, or the file beside the pages that it leads to."""
    for block in blocks(page):
        if block.word == f"file={name}":
            return block.text
    assert f"](../examples/workers/{name})" in (DOCS / page).read_text(encoding="utf-8")
    return (DOCS / "examples/workers" / name).read_text(encoding="utf-8")


@contextmanager
def worker(
    name: str, env: dict[str, str], tmp_path: Path, *command: str, page: str = PAGE
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a worker of the page in a process group of its own; yields it, and the file with what it prints."""
    (tmp_path / name).write_text(program_of(page, name), encoding="utf-8")
    printed = tmp_path / "printed"
    with printed.open("w") as out:
        process = subprocess.Popen(
            [*command, name], env=env, cwd=tmp_path, stdout=out, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
            # As at a terminal, however this run was started: Ctrl-C reaches the worker.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  (only that call)
        )  # fmt: skip
    try:
        yield process, printed
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def drains(name: str, boss: Client, env: dict[str, str], tmp_path: Path, *command: str, graceful: bool) -> None:
    """Let a worker do quick jobs, one longer than its lease and one that fails; stop it amid another."""
    boss.produce(TOPIC, [Record({"src": f"quick-{number}", "seconds": 0}) for number in range(4)])
    boss.produce(TOPIC, [Record({"src": "long", "seconds": 8}), Record({"seconds": 0})])
    with worker(name, env, tmp_path, *command) as (process, printed):
        eventually(lambda: boss.get_topic(TOPIC)["count"] == 0)
        lines = sorted(line for line in printed.read_text().splitlines() if line.startswith("done "))
        assert lines == ["done clip-1.mov", "done long", *(f"done quick-{number}" for number in range(4))]
        (dead,) = boss.read(f"{TOPIC}.dead").records
        assert (dead["data"], dead["meta"]["$dead_letter_deliveries"]) == ({"seconds": 0}, 2)

        boss.produce(TOPIC, [Record({"src": "last", "seconds": 3})])
        eventually(lambda: boss.get_topic(TOPIC)["queue"]["in_flight"] == 1)
        if graceful:
            # What is on its way to a worker that stops is given back: let it arrive.
            time.sleep(0.5)
            process.terminate()
            assert process.wait(60) in (0, -signal.SIGTERM), printed.read_text()
            assert "done last" in printed.read_text()
            assert boss.get_topic(TOPIC)["count"] == 0
        else:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
            eventually(lambda: boss.get_topic(TOPIC)["queue"]["ready"] == 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "command", "needs"), [
    ("worker.sh", "sh", ("curl", "jq")), ("worker.py", sys.executable, ()), ("worker.mjs", "node", ("node",)),
])  # fmt: skip
def test_a_worker(
    boss: Client, queue: None, env: dict[str, str], tmp_path: Path, name: str, command: str, needs: tuple[str, ...]
) -> None:
    need(*needs)
    drains(name, boss, env, tmp_path, command, graceful=command != "sh")


@pytest.mark.slow
def test_go(boss: Client, queue: None, env: dict[str, str], tmp_path: Path) -> None:
    need("go")
    # `go run` does not hand on a SIGTERM: what it builds does the work.
    (tmp_path / "worker.go").write_text(program_of(PAGE, "worker.go"), encoding="utf-8")
    building = {**env, "GO111MODULE": "off"}
    subprocess.run(["go", "vet", "worker.go"], cwd=tmp_path, env=building, check=True)
    subprocess.run(["go", "build", "-o", "worker", "worker.go"], cwd=tmp_path, env=building, check=True)
    drains("worker.go", boss, env, tmp_path, str(tmp_path / "worker"), graceful=True)


@pytest.mark.slow
def test_the_single_calls(boss: Client, queue: None, env: dict[str, str]) -> None:
    (program,) = [block for block in blocks(PAGE) if block.word == "run"]
    done = subprocess.run([sys.executable, "-c", program.text], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("job ")
    assert boss.get_topic(TOPIC)["queue"] == {"ready": 1, "in_flight": 0, "dead_lettered": 0}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "command"), [("orders.sh", "sh"), ("orders.py", sys.executable)])
def test_durable_jobs(boss: Client, env: dict[str, str], tmp_path: Path, name: str, command: str) -> None:
    if command == "sh":
        need("curl", "jq")
    env = {**env, "LEASEQUEUE_TOKEN": committed_key("read", "write", "emit")}
    order = 42 if command == "sh" else 43
    boss.put_topic("orders", type="queue")
    (seq,) = boss.produce("orders", [Record({"order": order})]).seqs
    with worker(name, env, tmp_path, command, page=DURABLE):
        eventually(lambda: JobStep.objects.filter(seq=seq, event=f"packed:{order}").exists(), "it waits")
        eventually(lambda: boss.get_topic("orders")["queue"]["in_flight"] == 0, "it was given back")
    (emit,) = [block for block in blocks(DURABLE) if block.language == "sh" and not block.word]
    subprocess.run(["sh", "-ec", emit.text.replace("packed:42", f"packed:{order}")], env=env, check=True)
    with worker(name, env, tmp_path, command, page=DURABLE) as (_, printed):
        eventually(lambda: boss.get_topic("orders")["count"] == 0, "it is done")
    (line,) = [line for line in printed.read_text().splitlines() if line.startswith("order ")]
    assert f"p-{order}" in line
    assert "parcel" in line
    names = set(JobStep.objects.filter(seq=seq).values_list("name", flat=True))
    assert names == {"charge", f"event packed:{order}", "cool off", "mail"}
