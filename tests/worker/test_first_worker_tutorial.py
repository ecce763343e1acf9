"""The first tutorial as its reader follows it: files, commands, sessions in a shell, and a worker killed."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import Block, blocks
from tests.support.waiting import eventually

PAGE = blocks("tutorial/first-worker.md")
#: Another environment with what the page installs: `.ci/run --everything` names one for each Django, made of the wheel.
PYTHON = os.environ.get("TUTORIAL_PYTHON", sys.executable)
#: A shell in which each line names a file with a session; it says whether the session printed what the page says.
SHELL = """
import doctest, sys
import django
django.setup()
names, parser = {}, doctest.DocTestParser()
for name in map(str.strip, sys.stdin):
    session = parser.get_doctest(open(name).read(), names, name, name, 0)
    session.globs = names
    failed, _ = doctest.DocTestRunner().run(session, clear_globs=False)
    print("@failed" if failed else "@passed", flush=True)
"""


class Reader:
    """A folder, and what its reader types in three terminals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "worker.log"
        path = os.pathsep.join([str(Path(PYTHON).parent), os.environ["PATH"]])
        left_out = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PYTHONPATH")
        self._environment = {name: value for name, value in os.environ.items() if name not in left_out} | {"PATH": path}
        self._worker: subprocess.Popen[bytes] | None = None
        self._shell: subprocess.Popen[str] | None = None

    def write(self, block: Block) -> None:
        how, _, name = block.word.partition("=")
        with (self.folder / name).open("a" if how == "append" else "w", encoding="utf-8") as file:
            # A lease that ends sooner: the test waits for it.
            file.write(block.text.replace("10_000", "3_000"))

    def type(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self._environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def start_worker(self, command: str) -> None:
        with self.output.open("ab") as file:
            self._worker = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self._environment,
                stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def kill_worker(self, command: str) -> None:
        assert self._worker is not None
        # Of this reader only: other tests have workers, too.
        self.type(command.replace("pkill", f"pkill -s {self._worker.pid}"))
        self._worker.communicate()

    def session(self, block: Block) -> None:
        """Type it, again and again until it prints what the page says: a reader waits for the worker in between."""
        (self.folder / "session.txt").write_text(block.text, encoding="utf-8")
        if self._shell is None:
            self._shell = subprocess.Popen(
                [PYTHON, "-c", SHELL], cwd=self.folder, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, env={**self._environment, "DJANGO_SETTINGS_MODULE": "mysite.settings"},
            )  # fmt: skip
        eventually(self._passes, block.text, 60)

    def _passes(self) -> bool:
        assert self._shell is not None
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write("session.txt\n")
        self._shell.stdin.flush()
        for line in self._shell.stdout:
            if line.startswith("@"):
                return line == "@passed\n"
        raise AssertionError("the shell has ended")

    def worker_says(self, text: str, times: int = 1) -> None:
        eventually(lambda: self.output.read_text().count(text) >= times, f"{text!r}, {times} times")

    def close(self) -> None:
        for process in (self._worker, self._shell):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()
        if (self.folder / ".leasequeue").exists():
            self.type("python manage.py leasequeue_devdb stop")


@pytest.fixture
def reader() -> Iterator[Reader]:
    # Not in pytest's folder: a run that begins meanwhile closes it to the server's account.
    with tempfile.TemporaryDirectory(prefix="lqreader-") as folder:
        Path(folder).chmod(0o755)
        found = Reader(Path(folder))
        yield found
        found.close()


@pytest.mark.slow
def test_the_reader_gets_what_the_page_says(reader: Reader) -> None:
    """Each block in its order. What installs is left out: the suite's environment has it."""
    installs = re.compile(r"^(python -m venv|source|pip install|python manage\.py shell$).*", re.MULTILINE)
    for block in PAGE:
        if block.word.startswith(("file=", "append=")):
            reader.write(block)
        elif block.word == "worker":
            worker = block.text.strip()
            reader.start_worker(worker)
        elif block.word == "kill":
            reader.worker_says("The report begins.")
            reader.kill_worker(block.text.strip())
        elif block.text.startswith(">>>"):
            reader.session(block)
        else:
            for command in filter(None, installs.sub("", block.text).splitlines()):
                said = reader.type(command)
                if "leasequeue_dlq list" in command:
                    assert "DoesNotExist" in said
    assert "The report is ready." not in reader.output.read_text()
    reader.start_worker(worker)
    reader.worker_says("The report is ready.")
    assert reader.output.read_text().count("Dear ann@example.com, here is your receipt.") == 1
