"""Processes of the project under one version: the head, or a release from its frozen wheel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.environment import BASE_DIR
from tests.support.waiting import eventually

HERE = Path(__file__).parent
PROJECT = HERE / "project"
#: Seconds that a process gets to end.
ENDING = 60
#: What a log says of errors, but for failed jobs: those are compared.
ERROR = re.compile(r" (ERROR|CRITICAL) (?!django_leasequeue\.jobs )|^Traceback")


def releases() -> list[str]:
    """The frozen releases, the oldest first."""
    found = [path.parent.name for path in HERE.glob("*/*.whl")]
    return sorted(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])


def interpreter(release: str) -> Path:
    """Return a Python with this release over the packages of this environment."""
    (wheel,) = (HERE / release).glob("*.whl")
    venv = BASE_DIR / f".venv-upgrade-{release}"
    python, done, wanted = venv / "bin" / "python", venv / "installed", f"{sys.executable} {wheel.stat().st_mtime_ns}"
    if not (done.exists() and done.read_text() == wanted):
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", venv], check=True)
        (own,) = venv.glob("lib/python*/site-packages")
        (own / "parent.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "-qq"]
        subprocess.run([*pip, "--no-deps", "--no-compile", wheel], check=True)
        done.write_text(wanted)
    return python


class Version:
    """A version of the package at work on one database."""

    def __init__(self, name: str, python: Path, url: str, directory: Path) -> None:
        self.name, self._directory = name, directory
        path = [str(PROJECT)] if name != "head" else [str(PROJECT), str(BASE_DIR)]
        self._environment = {
            # Compiled once, not by each process.
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "PYTHONPATH": os.pathsep.join(path),
        }
        self._python, self._running = python, dict[str, subprocess.Popen[bytes]]()

    def run(self, *command: str) -> str:
        """Run Python with arguments to its end; return what it printed."""
        done = subprocess.run(
            [self._python, *command], env=self._environment, cwd=PROJECT, capture_output=True, text=True, check=False
        )
        if done.returncode and not done.stdout:
            raise RuntimeError(f"{self.name}: {' '.join(command)} failed:\n{done.stderr[-3_000:]}")
        return done.stdout

    def start(self, role: str, *command: str) -> None:
        """Start a process whose log is named for its version and role."""
        with self._log(role).open("ab") as log:
            self._running[role] = subprocess.Popen(
                [self._python, *command], env=self._environment, cwd=PROJECT, stdout=log, stderr=subprocess.STDOUT
            )

    def work(self, processes: int) -> None:
        """Start a worker."""
        command = ("-m", "django", "runworker", "--queues", "*", "--concurrency", "8", "--processes", str(processes))
        self.start("worker", *command)

    def serve(self, first: int, rate: float, pause: float) -> None:
        """Start a web process, and wait until its first jobs are enqueued."""
        before = self.written()
        self.start("web", "-m", "shop.web", str(self.ledger), str(first), str(rate), str(pause))
        eventually(lambda: self._lives("web") and self.written() > before, "that jobs are enqueued", 300)

    def written(self) -> int:
        """Return how many bytes its web processes have written."""
        return self.ledger.stat().st_size if self.ledger.exists() else 0

    def _lives(self, role: str) -> bool:
        code = self._running[role].poll()
        assert code is None, (
            f"{self.name}: its {role} ended by itself with {code}:\n{self._log(role).read_text()[-3_000:]}"
        )
        return True

    def _log(self, role: str) -> Path:
        return self._directory / f"{self.name}-{role}.log"

    @property
    def ledger(self) -> Path:
        return self._directory / f"{self.name}.ledger"

    def stop(self, *roles: str) -> None:
        """Stop processes as a deploy does; one that ended before, or with an error, is an error."""
        stopping = [(role, self._running.pop(role)) for role in roles or tuple(self._running) if self._lives(role)]
        for _, process in stopping:
            process.send_signal(signal.SIGTERM)
        for role, process in stopping:
            code = process.wait(ENDING)
            assert code == 0, f"{self.name}: its {role} ended with {code}"

    def kill(self) -> None:
        """End what still runs, after an error."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def errors(self) -> list[str]:
        """The lines of its logs that report an error."""
        return [
            f"{log.name}: {line}"
            for log in self._directory.glob(f"{self.name}-*.log")
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
            if ERROR.search(line)
        ]
