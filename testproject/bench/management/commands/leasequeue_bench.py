"""``manage.py leasequeue_bench``: how fast the queue is on this machine, beside what bare SQL does on it."""

from __future__ import annotations

import json
import os
import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import connections
from django.test import override_settings

from django_leasequeue import conf
from testproject.bench import options as bench_options
from testproject.bench.environment import remarks
from testproject.bench.modes import DEFAULT_MODES, MODES
from testproject.bench.options import BenchOptions
from testproject.bench.progress import Progress
from testproject.bench.report import summary, table
from testproject.bench.runner import Outcome, run
from testproject.bench.sandbox import BenchRefused, signs_of_production


class Command(BaseCommand):
    help = (
        "Measure the queue on this machine and this database. Every figure stands beside a ceiling measured in the"
        " same run: the barest SQL that could do the same job. It works in a project of its own and removes what it"
        " made."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--modes",
            type=_modes,
            metavar="NAME,...",
            help=f"only these of {', '.join(MODES)} (see --list)",
        )
        parser.add_argument("--list", action="store_true", help="list the modes and end")
        parser.add_argument(
            "--size",
            type=_bounded(bench_options.MIN_SIZE, bench_options.MAX_SIZE),
            metavar="N",
            help=f"jobs of one round; all other counts follow from it ({bench_options.SIZE})",
        )
        parser.add_argument(
            "--rounds",
            type=_bounded(1, bench_options.MAX_ROUNDS),
            metavar="N",
            help=f"how often each figure and its ceiling are taken in turn ({bench_options.ROUNDS})",
        )
        parser.add_argument(
            "--quick",
            action="store_true",
            help=f"a first impression: --size {bench_options.QUICK_SIZE} --rounds {bench_options.QUICK_ROUNDS}",
        )
        parser.add_argument("--json", metavar="FILE", help="write the report there as JSON; - for standard output")
        parser.add_argument("--costs", action="store_true", help="show CPU time and WAL of a job beneath each figure")
        parser.add_argument("--database", metavar="ALIAS", help="the database (LEASEQUEUE['DATABASE'])")
        parser.add_argument(
            "--events",
            type=_bounded(1_000, 100_000_000),
            metavar="N",
            help="instead: write a made-up week of about N events into the lease log, and leave it there",
        )
        parser.add_argument(
            "--together",
            type=_bounded(1, 1_000),
            default=1,
            metavar="N",
            help="with --events: jobs that come, are claimed and end at once, as events of one row (1)",
        )
        parser.add_argument(
            "--spark",
            action="store_true",
            help="instead: measure the lake on the events that are there (after --events, if both are given)",
        )
        parser.add_argument("--http", action="store_true", help="only the HTTP door (--modes http)")
        parser.add_argument("--yes", action="store_true", help="run although this looks like production")

    def handle(self, *args: Any, **given: Any) -> None:
        if given["list"]:
            self._list()
            return
        options = _options(given)
        if given["events"] or given["spark"]:
            self._lake(options, given)
            return
        modes = given["modes"] or (["http"] if given["http"] else DEFAULT_MODES)
        target = _writable(given["json"])
        if not given["yes"]:
            self._look_out(options.using)
        # Progress goes to the error stream: standard output holds the report alone.
        progress = Progress(OutputWrapper(given.get("stderr") or sys.stderr, ending="") if given["verbosity"] else None)
        try:
            with _termination_interrupts(), _as_in_production():
                outcome = run(options, modes, progress)
        except BenchRefused as error:
            raise CommandError(str(error)) from error
        self._write(outcome, target, costs=given["costs"])
        for mode, why in outcome.errors.items():
            self.stderr.write(self.style.ERROR(f"The mode {mode} failed: {why}"))
        if outcome.interrupted:
            raise CommandError("Interrupted: the report is not complete.", returncode=130)
        if outcome.errors:
            raise CommandError("Not every mode could be measured.")

    def _lake(self, options: BenchOptions, given: dict[str, Any]) -> None:
        from testproject.bench import events

        if not given["yes"]:
            self._look_out(options.using)
        progress = Progress(OutputWrapper(given.get("stderr") or sys.stderr, ending="") if given["verbosity"] else None)
        if given["events"]:
            written = events.write(
                given["events"],
                using=options.using,
                together=given["together"],
                tell=lambda count: progress.step(f"{count:,} events"),
            )
            progress.done()
            self.stdout.write(f"{written:,} events written")
        if given["spark"]:
            from testproject.bench import spark

            for line in spark.measure(options.using, progress.step):
                progress.done()
                self.stdout.write(line)

    def _list(self) -> None:
        width = max(map(len, MODES))
        for name, mode in MODES.items():
            self.stdout.write(f"{name.ljust(width)}  {mode.SUMMARY}")

    def _look_out(self, using: str) -> None:
        signs = signs_of_production(using)
        if signs:
            raise CommandError(
                f"This looks like production: {'; '.join(signs)}. A benchmark takes the whole machine for minutes"
                " and writes gigabytes. Use another database, or add --yes if you mean it."
            )

    def _write(self, outcome: Outcome, target: Path | None, *, costs: bool) -> None:
        report = json.dumps(outcome.as_json(), indent=2)
        if target == Path("-"):
            self.stdout.write(report)
            return
        found = outcome.environment
        self.stdout.write(
            f"PostgreSQL {found['postgresql']}, Python {found['python']}, Django {found['django']},"
            f" {found['cpus']} CPUs {found['processor']}".rstrip()
        )
        for remark in remarks(found):
            self.stdout.write(self.style.WARNING(remark))
        self.stdout.write("")
        for line in table(outcome.figures, costs=costs):
            self.stdout.write(line)
        self.stdout.write(f"{summary(outcome.figures)} {outcome.seconds:,.0f} s.")
        if target is not None:
            target.write_text(report + "\n", encoding="utf-8")
            self.stdout.write(f"Report written to {target}")


def _modes(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in MODES]
    if unknown or not names:
        raise ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} is not a mode; the modes are {', '.join(MODES)}")
    return [name for name in MODES if name in names]


def _bounded(low: int, high: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text.replace("_", ""))
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise ArgumentTypeError(f"it must be from {low:,} to {high:,}; it is {value:,}")
        return value

    return convert


def _options(given: dict[str, Any]) -> BenchOptions:
    quick = given["quick"]
    using = given["database"] or conf.settings.DATABASE
    if using not in connections:
        raise CommandError(f"There is no database {using!r} in DATABASES: {', '.join(connections)}.")
    if connections[using].vendor != "postgresql":
        raise CommandError(f"The database {using!r} is not PostgreSQL.")
    return BenchOptions(
        using=using,
        size=given["size"] or (bench_options.QUICK_SIZE if quick else bench_options.SIZE),
        rounds=given["rounds"] or (bench_options.QUICK_ROUNDS if quick else bench_options.ROUNDS),
    )


def _writable(name: str | None) -> Path | None:
    """Refuse a file that cannot be written before minutes have been spent on what it is to hold."""
    if name is None:
        return None
    path = Path(name)
    if name != "-":
        try:
            path.touch()
        except OSError as error:
            raise CommandError(f"The report cannot be written: {error}") from error
    return path


@contextmanager
def _as_in_production() -> Iterator[None]:
    """Run without DEBUG here and in children: with it Django logs queries, and each statement goes by its cursor."""
    with override_settings(DEBUG=False), patch.dict(os.environ, TESTPROJECT_DEBUG="off"):
        yield


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: it cleans up."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
