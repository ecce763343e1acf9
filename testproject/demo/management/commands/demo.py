"""``manage.py demo``: real work on real files, from the enqueue to the dead letters."""

from __future__ import annotations

import os
import signal
import sysconfig
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse
from django.utils import timezone

from django_leasequeue import engine
from django_leasequeue.models import Queue
from testproject.demo.display import ProgressBar, table
from testproject.demo.durable import steps
from testproject.demo.figures import progress, summarise
from testproject.demo.models import SourceReport, Total
from testproject.demo.processes import Child, free_port, running
from testproject.demo.source import find_sources
from testproject.demo.tasks import publish_total, report_source

QUEUE = "demo"
#: Short tries, so that what cannot succeed is a dead letter before a visitor's coffee is cold.
OPTIONS: dict[str, Any] = {
    "preset": "django",
    "max_deliveries": 3,
    "backoff": "exponential",
    "backoff_base_ms": 500,
    "backoff_max_ms": 4_000,
}
#: Made up, and printed: whoever can reach the demo's server is on this machine.
LOGIN = "demo"
PASSWORD = "demo"

_TICK = 0.2
#: A run in which nothing ends for so long has stopped.
_PATIENCE = 120.0


class Command(BaseCommand):
    """Enqueue one job per Python file of a directory, run them, and show what came of it."""

    help = (
        "Real work on real files: parses every Python file of a directory in a worker, with a progress bar and a table"
        " at the end; then serves the admin until Ctrl-C."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--path",
            default=os.environ.get("DEMO_PATH") or sysconfig.get_path("stdlib"),
            help="the directory (default: DEMO_PATH, or this Python's standard library)",
        )
        parser.add_argument(
            "--exit",
            action="store_true",
            default=os.environ.get("DEMO_EXIT", "") not in ("", "0"),
            help="end after the table (default: DEMO_EXIT=1)",
        )
        parser.add_argument(
            "--processes", type=int, default=max(os.cpu_count() or 1, 1), help="worker processes (default: one a CPU)"
        )
        parser.add_argument(
            "--port",
            type=int,
            default=int(os.environ.get("PORT") or 8000),
            help="of the admin (default: PORT, or 8000)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            sources = find_sources(Path(options["path"]))
        except NotADirectoryError as error:
            raise CommandError(f"{error} Name another one: make demo DEMO_PATH=directory") from error
        if not sources:
            raise CommandError(f"There is no Python file below {options['path']}. Name another one with DEMO_PATH=.")
        end = "it ends." if options["exit"] else "it serves the admin until Ctrl-C."
        self.stdout.write(
            f"This demo enqueues a job for each of {len(sources):,} Python files, runs them in a worker with"
            f" {options['processes']} processes,\nand shows what came of them. A file that cannot be parsed becomes a"
            f" dead letter. Then {end}\n"
        )
        began = time.perf_counter()
        call_command("migrate", verbosity=0)
        self.stdout.write(f"The tables are there ({time.perf_counter() - began:.1f} s).")
        queue = prepare()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        try:
            with running("demo-worker", *_worker(options["processes"])) as worker:
                self._work(queue, worker, sources, options)
                if not options["exit"]:
                    self._serve(worker, options["port"], sources[0])
        except KeyboardInterrupt:
            self.stdout.write("\nStopped.")

    def _work(self, queue: Queue, worker: Child, sources: list[Path], options: dict[str, Any]) -> None:
        since = timezone.now()
        began = time.perf_counter()
        report_source.enqueue_many((str(path),) for path in sources)
        self.stdout.write(
            f"{len(sources):,} Python files below {options['path']}, a job each, enqueued in"
            f" {time.perf_counter() - began:.2f} s; {options['processes']} worker processes."
        )
        bar = ProgressBar(self.stdout, len(sources))
        moved, before = time.monotonic(), -1
        while True:
            now = progress(queue, since)
            bar.show(now)
            if not now.left:
                break
            if now.ended != before:
                moved, before = time.monotonic(), now.ended
            if worker.ended is not None:
                raise CommandError(f"The worker ended with code {worker.ended}:\n{worker.last_lines()}")
            if time.monotonic() - moved > _PATIENCE:
                raise CommandError(f"Nothing has ended for {_PATIENCE:.0f} s. The worker says:\n{worker.last_lines()}")
            time.sleep(_TICK)
        bar.end()
        self.stdout.write(table(summarise(queue, since)))
        self.stdout.write("\nNow a task of several steps, whose worker is killed in the middle:")
        try:
            for line in steps(options["path"]):
                self.stdout.write(f"  {line}")
        except TimeoutError as error:
            raise CommandError(str(error)) from error

    def _serve(self, worker: Child, port: int, source: Path) -> None:
        port = free_port(port)
        self.stdout.write(
            f"\nThe worker goes on. Look around:\n"
            f"  admin               http://127.0.0.1:{port}/admin/   (login {LOGIN}, password {PASSWORD})\n"
            f"  how it went         http://127.0.0.1:{port}{reverse('admin:leasequeue_overview')}\n"
            f"  its dead letters    http://127.0.0.1:{port}{reverse('admin:leasequeue_deadletters')}\n"
            f"  a task of your own  http://127.0.0.1:{port}/demo/\n"
            f"  a shell             .venv/bin/python manage.py shell\n"
            f"                      >>> from testproject.demo.tasks import report_source\n"
            f"                      >>> result = report_source.enqueue('{source}')\n"
            f"                      >>> result.refresh(); result.status, result.errors, result.worker_ids\n"
            f"  another worker      .venv/bin/python manage.py runworker --queues {QUEUE}\n"
            f"  the database        .venv/bin/python manage.py leasequeue_devdb psql\n"
            f"  other files         make demo DEMO_PATH=directory\n"
            f"Ctrl-C ends it."
        )
        with running("demo-server", "serve", f"127.0.0.1:{port}") as server:
            while server.ended is None and worker.ended is None:
                time.sleep(_TICK)
            ended = server if server.ended is not None else worker
            raise CommandError(f"It ended with code {ended.ended}:\n{ended.last_lines()}")


def _worker(processes: int) -> list[str]:
    # Parsing keeps a CPU busy: one or two threads a process, and a process a CPU.
    return ["runworker", "--queues", QUEUE, "--processes", str(processes), "--concurrency", "2"]


def prepare() -> Queue:
    """Make the login and the queue, and clear away what an earlier run left; return the queue."""
    users = get_user_model()._default_manager
    if not users.filter(username=LOGIN).exists():
        users.create_superuser(username=LOGIN, email="", password=PASSWORD)
    if not engine.run(engine.create(QUEUE, **OPTIONS)):
        engine.run(engine.configure(QUEUE, **OPTIONS))
    for name in (QUEUE, publish_total.queue_name):
        engine.run(engine.create(name, preset="django"))
        while engine.run(engine.purge(name, states=["ready", "delayed", "leased", "dead"])):
            pass
    SourceReport.objects.all().delete()
    Total.objects.all().delete()
    return Queue.objects.get(project="", name=QUEUE)
