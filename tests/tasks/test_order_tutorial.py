"""The tutorial about an order, followed by its reader: files, commands, sessions in a shell, and a worker killed."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.documents import blocks
from tests.support.environment import child_environment, python
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

PAGE = blocks("tutorial/order.md")
#: A session of the page in a shell of its own; its doctest says whether it printed what the page says.
SESSION = "import django, doctest; django.setup(); exit(doctest.testfile('session.txt', module_relative=False)[0])"
#: Less time to kill the worker; more for the warehouse and the day, whose sessions are slow on a busy machine.
EDITS = {"seconds=20": "seconds=40", "sleep(15)": "sleep(4)", "2 * settings.SHOP_DAY": "600"}


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Reader:
    """A project in a folder, and what its reader does."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        environment = child_environment(url)
        path = os.pathsep.join([str(folder), environment["PYTHONPATH"]])
        self._environment = {**environment, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "mysite.settings"}
        self._sessions = iter([block.text for block in PAGE if block.text.startswith(">>>")])
        self.log = folder / "services.log"
        self.workers: list[subprocess.Popen[bytes]] = []

    def write(self, name: str, text: str) -> None:
        for said, edited in EDITS.items():
            text = text.replace(said, edited)
        path = self._folder / name
        with path.open("a" if name == "mysite/settings.py" else "w", encoding="utf-8") as file:
            file.write(text)

    def run(self, *arguments: str) -> None:
        done = python(*arguments, cwd=self._folder, env=self._environment)
        assert done.returncode == 0, done.stdout + done.stderr

    def session(self) -> None:
        self.write("session.txt", next(self._sessions))
        self.run("-c", SESSION)

    def start_worker(self) -> None:
        self.workers.append(
            subprocess.Popen(
                [sys.executable, "-m", "django", "runworker"], cwd=self._folder, env=self._environment,
                start_new_session=True, stderr=subprocess.DEVNULL,
            )
        )  # fmt: skip

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def reader(tmp_path: Path, migrated_server: TemporaryServer) -> Iterator[Reader]:
    found = Reader(tmp_path, migrated_server.url())
    step_1 = blocks("tutorial/first-worker.md")
    for command in re.findall(r"^(django-admin|python manage\.py) (start.*)$", step_1[0].text, re.MULTILINE):
        found.run("-m", "django", *command[1].split())
    settings = next(block.text for block in PAGE if block.text.startswith("# settings.py"))
    found.write("mysite/settings.py", step_1[1].text + settings)
    for block in PAGE:
        if block.word:
            found.write(block.word.removeprefix("file="), block.text)
    for block in PAGE:
        for command in re.findall(r"^python manage\.py (.*migra.*)$", block.text, re.MULTILINE):
            found.run("-m", "django", *command.split())
    yield found
    for worker in found.workers:
        kill(worker)


@pytest.mark.slow
def test_the_reader_gets_what_the_page_says(reader: Reader, migrated_server: TemporaryServer) -> None:
    def has_step(name: str) -> None:
        with psycopg.connect(migrated_server.conninfo(), autocommit=True) as connection:
            found = "SELECT FROM leasequeue_jobstep WHERE name = %s"
            eventually(lambda: connection.execute(found, [name]).fetchall(), f"the step {name}")

    reader.session()  # places an order
    reader.start_worker()
    has_step("charge")  # and its record
    kill(reader.workers[0])
    reader.session()  # nothing is reserved
    reader.start_worker()
    has_step("reserve")
    reader.session()  # reserved once, charged once
    reader.session()  # packed
    has_step("on its way")
    reader.session()  # what it has done
    eventually(lambda: reader.calls()[1:], "the mail")
    reader.session()
    assert [call.split()[0] for call in reader.calls()] == ["charged", "mail"]
    (command,) = re.findall(r"^pytest (.*)$", "".join(block.text for block in PAGE), re.MULTILINE)
    reader.run("-m", "pytest", "-p", "no:cacheprovider", *command.split())
