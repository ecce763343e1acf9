"""``manage.py runworker``: run the jobs of queues."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentTypeError
from typing import Any, TextIO, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser, OutputWrapper
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue import conf
from django_leasequeue.checks.settings import TAG
from django_leasequeue.conf.loglines import LOGGER, LogStream, set_up_logging
from django_leasequeue.conf.options import WorkerOptions
from django_leasequeue.management import LeaseQueueCommand, failure, require_tables
from django_leasequeue.tasks.options import of_backends
from django_leasequeue.worker.process import run_alone, run_reloading
from django_leasequeue.worker.worker import load_each


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _limit(text: str) -> tuple[str, int]:
    name, _sign, number = text.rpartition("=")
    if not (name and number.isascii() and number.isdigit()):
        raise ArgumentTypeError(_("must be NAME=N, such as heavy=2; it is {given!r}").format(given=text))
    return name, int(number)


def _warn_of_no_backend(handler: str) -> None:
    if handler == WorkerOptions().handler and not of_backends():
        logging.getLogger(LOGGER).warning(
            "No alias of TASKS is a django_leasequeue.tasks.LeaseQueueBackend: enqueue() of a task adds no job"
        )


class Command(LeaseQueueCommand):
    """Run the jobs of queues."""

    help = gettext_noop(
        "Run the jobs of queues until SIGTERM or SIGINT; a second signal does not wait for running jobs."
        " Exit codes: 0 everything ended or was given back before it started, 1 it could not start, 3 running jobs were"
        " given back, 70 a part of the worker broke."
    )
    # The checks of a whole project load its URLs and views, which a worker may never need: `manage.py check` runs them.
    requires_system_checks = (TAG,)

    def add_arguments(self, parser: CommandParser) -> None:
        default = WorkerOptions()
        add = parser.add_argument
        names = _(
            "in order of preference; also patterns ('mail*') and what these leave out ('-mail.bulk');"
            " '*': all of the project that hold tasks (default)"
        )
        add("--queues", type=_names, metavar="NAME,NAME", help=names)
        most = _("run at most N jobs of this queue at once in each process; also for a pattern, and several times")
        add("--limit", type=_limit, action="append", dest="limits", metavar="NAME=N", help=most)
        add("--project", help=_("the tenant whose queues these are (default: none)"))
        add("--database", metavar="ALIAS", help=_("only this database (default: every one that holds queues)"))
        grace = _("how long a job may go on after its timeout before its process is replaced; 0 for ever")
        for name, kind, unit, text in (
            ("concurrency", int, "N", _("threads for sync functions")),
            ("async-concurrency", int, "N", _("async functions at once (default: as --concurrency)")),
            ("processes", int, "N", _("processes for each database, each with threads of its own")),
            ("prefetch", int, "N", _("jobs claimed ahead at most, while they are short; 0 for none")),
            ("ack-batch", int, "N", _("results written with one statement at most")),
            ("ack-ms", float, "MS", _("how long a result waits for others while the worker is busy")),
            ("max-jobs", int, "N", _("stop after N jobs; with --processes each is replaced after N")),
            ("poll", float, "SECONDS", _("seconds between polls without a notification, as a backstop")),
            ("timeout", float, "SECONDS", _("timeout of tasks that name none; 0 for none")),
            ("timeout-grace", float, "SECONDS", grace),
            ("drain-timeout", float, "SECONDS", _("how long a stop waits for running jobs")),
            ("health-port", int, "PORT", _("answer health probes on this port")),
        ):
            words = text
            if usual := getattr(default, name.replace("-", "_")):
                words = _("{text} (default {value})").format(text=text, value=f"{usual:g}")
            add(f"--{name}", type=kind, metavar=unit, help=words)
        address = _("address of --health-port (default {value})").format(value=default.health_host)
        add("--health-host", metavar="HOST", help=address)
        add("--health-file", metavar="FILE", help=_("write this file every few seconds while all is well"))
        add("--node", help=_("the worker's name (default: host, process id and a random part)"))
        add("--handler", metavar="PATH", help=_("dotted path of the class that runs jobs (default: Django tasks)"))
        add("--burst", action="store_true", default=None, help=_("stop when no job is ready"))
        leave = _("leave the reaper's duties to others")
        add("--no-reaper", action="store_false", dest="reaper", default=None, help=leave)
        add("--json-logs", action="store_true", default=None, help=_("every line of the log is a JSON object"))
        alone = _("for development: start anew when the code changes; one process, and it does not end by itself")
        add("--reload", action="store_true", help=alone)

    def execute(self, *args: Any, **options: Any) -> str | None:
        # Settings that are wrong are reported by the checks.
        as_json = options.get("json_logs") or (not conf.problems() and conf.settings.WORKER.json_logs)
        if not as_json:
            return super().execute(*args, **options)
        # First of all: what the checks say is a line of the log as well, and why the worker does not start.
        set_up_logging(as_json=True, verbosity=options["verbosity"])
        self.stderr = OutputWrapper(cast(TextIO, LogStream(logging.WARNING)))
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            logging.getLogger(LOGGER).critical("%s", error)
            sys.exit(error.returncode)

    def handle(self, *args: Any, **given: Any) -> None:
        names = WorkerOptions.__dataclass_fields__
        given["limits"] = dict(given["limits"]) if given.get("limits") else None
        try:
            each = load_each(**{name: given.get(name) for name in names})
            options = each[0]
            set_up_logging(as_json=options.json_logs, verbosity=given["verbosity"])
            for one in each:
                require_tables(one.database)
            _warn_of_no_backend(options.handler)
            if given["reload"]:
                if len(each) > 1:
                    aliases = ", ".join(one.database for one in each)
                    text = _("--reload runs one process, for one database: add --database ({aliases}).")
                    raise failure(text, aliases=aliases)
                code = run_reloading(options)
            elif len(each) > 1 or options.processes > 1:
                from django_leasequeue.worker.supervisor import Supervisor

                code = Supervisor(*each).run()
            else:
                code = run_alone(options)
        except (ImproperlyConfigured, ImportError, OSError) as error:
            raise CommandError(str(error)) from error
        if code:
            sys.exit(code)
