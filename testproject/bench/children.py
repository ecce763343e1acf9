"""Processes of the benchmark: workers as users run them, and the bare worker that is their ceiling."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import IO, Any

from django.conf import ENVIRONMENT_VARIABLE
from django.conf import settings as django_settings
from psycopg.conninfo import make_conninfo

from django_leasequeue.engine import pool
from django_leasequeue.exceptions import LeaseQueueError

from . import bare_worker, processes
from .child import PARENT_VARIABLE
from .options import PROJECT
from .producer import DATABASE_VARIABLE

#: Seconds between two looks at a process.
_SAMPLE_EVERY = 0.02


class ChildFailed(LeaseQueueError):
    """A process of the benchmark ended with an error, or did not end."""


class Sample:
    """What a process had used at one moment."""

    __slots__ = ("at", "cpu", "resident")

    def __init__(self, at: float, cpu: float, resident: int) -> None:
        self.at = at
        self.cpu = cpu
        self.resident = resident


@cache
def _compiled_once() -> dict[str, str]:
    """Where this process may not write compiled modules, its children share them in a directory that goes with it.

    Compiling the same modules again and again would be half of the time that a worker takes to start.
    """
    if not sys.dont_write_bytecode:
        return {}
    directory = tempfile.mkdtemp(prefix="lqbench-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": directory}


class Child:
    """A process that is watched: its CPU time and memory are read many times a second.

    Use as a context manager: it is ended with the block.

    Args:
        arguments: behind ``python``.
        environment: over this process's own.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._arguments = [sys.executable, *arguments]
        self._environment = {
            **os.environ,
            **_compiled_once(),
            **environment,
            PARENT_VARIABLE: str(os.getpid()),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        self.samples: list[Sample] = []
        self._done = threading.Event()

    def __enter__(self) -> Child:
        self._output: IO[bytes] = tempfile.TemporaryFile()
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        # A session of its own: Ctrl-C is for the benchmark, which ends its children in order.
        self._process = subprocess.Popen(  # nosec B603  # no shell; the arguments are the benchmark's
            self._arguments,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            start_new_session=True,
        )
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._done.set()
        self._watcher.join()
        self._output.close()
        self._errors.close()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_EVERY):
            cpu = processes.times(self._process.pid)
            resident = processes.resident_bytes(self._process.pid)
            if cpu is not None and resident:
                self.samples.append(Sample(time.time(), cpu.own + cpu.ended_children, resident))

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self, timeout: float) -> str:
        """Wait for its end and return what it printed.

        Args:
            timeout: seconds.

        Raises:
            ChildFailed: it ended with an error, or did not end in time.
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"{self._name} did not end within {timeout:g} s. {self._tail()}") from None
        if code:
            raise ChildFailed(f"{self._name} ended with code {code}. {self._tail()}")
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def check(self) -> None:
        """Raise ``ChildFailed`` if it has ended."""
        if not self.running:
            raise ChildFailed(f"{self._name} ended with code {self._process.returncode}. {self._tail()}")

    def stop(self) -> None:
        """End it: asked first, forced after some seconds."""
        if not self.running:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def cpu_between(self, start: float, end: float) -> float | None:
        """Return the CPU seconds used between two moments (epoch seconds); ``None`` if it was not seen then."""
        before, after = self._cpu_at(start), self._cpu_at(end)
        return None if before is None or after is None else after - before

    def _cpu_at(self, moment: float) -> float | None:
        earlier: Sample | None = None
        for sample in self.samples:
            if sample.at >= moment:
                if earlier is None or sample.at == earlier.at:
                    return sample.cpu
                share = (moment - earlier.at) / (sample.at - earlier.at)
                return earlier.cpu + share * (sample.cpu - earlier.cpu)
            earlier = sample
        return None if earlier is None else earlier.cpu

    @property
    def _name(self) -> str:
        return " ".join(self._arguments[1:])

    def _tail(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2_000:].strip()


def _command(arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
    return _module("testproject.bench.child", [*arguments, "--verbosity", "0"], environment)


def _module(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
    module = getattr(django_settings, "SETTINGS_MODULE", None) or os.environ.get(ENVIRONMENT_VARIABLE)
    if not module:
        raise ChildFailed("Workers are processes of their own: they need DJANGO_SETTINGS_MODULE to name the settings.")
    return Child(
        ["-m", name, *arguments],
        {
            ENVIRONMENT_VARIABLE: "testproject.bench.worker_settings",
            "LEASEQUEUE_BENCH_SETTINGS": str(module),
            **environment,
        },
    )


def worker(using: str, queue: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Child:
    """Return a worker on one queue, not yet started.

    Args:
        using: alias of the database.
        queue: its name, in the benchmark's project.
        arguments: further options of ``runworker``.
        environment: for its tasks.

    Raises:
        ChildFailed: the settings are not in a module that a process could read.
    """
    command = ["runworker", "--project", PROJECT, "--queues", queue, "--database", using]
    return _command([*command, *arguments], environment or {})


def worker_of_all(urls: Mapping[str, str], *arguments: str) -> Child:
    """Return a worker on all queues of several servers, by alias, not yet started."""
    environment = {"LEASEQUEUE_BENCH_SETTINGS": "testproject.settings_servers", "LEASEQUEUE_SERVERS": json.dumps(urls)}
    return _command(["runworker", "--project", PROJECT, *arguments], environment)


def reaper(using: str) -> Child:
    """Return a reaper, not yet started: where no worker runs, somebody must still move the floors.

    Args:
        using: alias of the database.

    Raises:
        ChildFailed: the settings are not in a module that a process could read.
    """
    return _command(["runreaper", "--database", using], {})


def producer(using: str, queue: str, count: int) -> Child:
    """Return a producer that calls a task one at a time on Django's own connection, not yet started.

    Args:
        using: alias of the database.
        queue: its name, in the benchmark's project.
        count: how many calls.

    Raises:
        ChildFailed: the settings are not in a module that a process could read.
    """
    return _module("testproject.bench.producer", [queue, str(count)], {DATABASE_VARIABLE: using})


def bare_producer(using: str, count: int) -> Child:
    """Return a process that inserts one row at a time into the bare table, not yet started."""
    return Child(["-m", "testproject.bench.producer", str(count)], {bare_worker.DSN_VARIABLE: _dsn(using)})


def bare(using: str, argument: str, environment: Mapping[str, str] | None = None) -> Child:
    """Return a bare worker, not yet started.

    Args:
        using: alias of the database.
        argument: the size of its batches, or ``listen``, or ``reply``.
        environment: for its jobs.
    """
    return Child(
        ["-m", "testproject.bench.bare_worker", argument],
        {bare_worker.DSN_VARIABLE: _dsn(using), **(environment or {})},
    )


def _dsn(using: str) -> str:
    parameters: dict[str, Any] = pool.connection_parameters(using)
    return make_conninfo(**parameters)
