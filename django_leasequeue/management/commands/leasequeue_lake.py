"""``manage.py leasequeue_lake``: the lease log as a lake."""

from __future__ import annotations

import webbrowser
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, override

from django_leasequeue import conf
from django_leasequeue.engine import ConnectionExecutor, partitions
from django_leasequeue.engine.epoch import above_horizon
from django_leasequeue.engine.pool import connect
from django_leasequeue.exceptions import StorageError
from django_leasequeue.management import LeaseQueueCommand, failure
from django_leasequeue.models import LakeConsumer
from django_leasequeue.reaper.status import lake_status
from django_leasequeue.sql.log_notes import waiting_text

if TYPE_CHECKING:
    from django_leasequeue.spark.layout import Lake


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise ArgumentTypeError(_("must be a positive number; it is {given!r}").format(given=text))
    return value


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 36_500:
        raise ArgumentTypeError(_("must be a number of days from 1; it is {given!r}").format(given=text))
    return int(text)


class Command(LeaseQueueCommand):
    """Run the lake pipeline and its report."""

    help = gettext_noop("Events into a lake, figures, a report, the archive, and dead letters back, with Apache Spark.")
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        lake = conf.settings.LAKE
        shared = CommandParser(add_help=False)
        place = _("a directory, s3a://, gs:// ... (LAKE['PATH'])")
        shared.add_argument("--lake", default=lake.PATH, metavar="PATH", help=place)
        shared.add_argument(
            "--database", dest="using", default=conf.settings.DATABASE, metavar="ALIAS", help=_("alias (%(default)s)")
        )
        shared.add_argument("--master", default=lake.MASTER, help=_("Spark master (local[2])"))
        shared.add_argument("--remote", default=lake.REMOTE, help=_("Spark Connect server, sc://host:port"))
        shared.add_argument("--memory", default=lake.MEMORY, help=_("heap of a local Spark (1g)"))
        log, warnings = Path("leasequeue-spark.log"), _("where a local Spark writes its warnings (%(default)s)")
        shared.add_argument("--spark-log", type=Path, default=log, metavar="FILE", help=warnings)
        names = "run|report|archive|replay|compact|status|forget"
        actions = parser.add_subparsers(dest="action", required=True, metavar=names)
        run = actions.add_parser("run", parents=[shared], help=_("read what is new; silver and gold tables"))
        run.add_argument("--consumer", default=lake.CONSUMER, help=_("name for retention (%(default)s)"))
        wait = _("p99 to plan workers for")
        run.add_argument("--wanted-wait", type=_positive, default=5.0, metavar="SECONDS", help=wait)
        loss = _("go on where retention dropped events unread; the lake notes it")
        run.add_argument("--accept-loss", action="store_true", help=loss)
        moved = _("the lake's install was moved or renamed, and is this one from now on")
        run.add_argument("--adopt", action="store_true", help=moved)
        report = actions.add_parser("report", parents=[shared], help=_("write the report of the gold tables"))
        report.add_argument("--output", type=Path, default=Path("lake-report"), metavar="DIR", help="(%(default)s)")
        site = _("of the site whose admin the report links to (LAKE['SITE'])")
        report.add_argument("--site", default=lake.SITE, metavar="URL", help=site)
        newest = _("only of jobs enqueued on the newest N days (default: of all)")
        report.add_argument("--days", type=_days, metavar="N", help=newest)
        report.add_argument("--open", action="store_true", help=_("open it in the browser"))
        archive = actions.add_parser("archive", parents=[shared], help=_("closed partitions as verified Parquet"))
        archive.add_argument("--prune", action="store_true", help=_("let retention drop what may go, at once"))
        replay = actions.add_parser("replay", parents=[shared], help=_("dead letters back into a queue"))
        replay.add_argument("--where", default="true", metavar="SQL", help=_("condition on the columns of the table"))
        replay.add_argument("--from", dest="table", choices=("jobs", "results"), default="jobs")
        replay.add_argument("--queue", help=_("where to (default: where each came from)"))
        replay.add_argument("--rate", type=_positive, metavar="N", help=_("jobs a second (default: at once)"))
        replay.add_argument("--write-id", help=_("name of this replay: the same name never replays twice"))
        replay.add_argument("--dry-run", action="store_true", help=_("only say what would be replayed"))
        actions.add_parser("compact", parents=[shared], help=_("merge small files of Delta tables, remove old ones"))
        actions.add_parser("status", parents=[shared], help=_("consumers, horizon, archive and tables; needs no Spark"))
        forget = actions.add_parser("forget", parents=[shared], help=_("remove a consumer: retention waits no longer"))
        forget.add_argument("consumer")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"_{options['action']}")(options)

    @contextmanager
    def _lake(self, options: dict[str, Any]) -> Iterator[Lake]:
        from django_leasequeue import spark

        if not options["lake"]:
            raise CommandError(_("Say where the lake is: --lake PATH, or LEASEQUEUE['LAKE']['PATH']."))
        given = {name: options[name] for name in ("master", "remote", "memory")}
        session = spark.session("leasequeue-lake", **given, conf=conf.settings.LAKE.CONF, log=options["spark_log"])
        from pyspark.errors import PySparkException

        from django_leasequeue.spark.layout import Lake
        from django_leasequeue.spark.session import said

        root = options["lake"] if "://" in options["lake"] else str(Path(options["lake"]).absolute())
        try:
            yield Lake(session, root, conf.settings.LAKE.FORMAT)
        except PySparkException as error:
            raise failure(_("{error} (Spark's log: {path})"), error=said(error), path=options["spark_log"]) from error
        finally:
            session.stop()

    def _run(self, options: dict[str, Any]) -> None:
        with self._lake(options) as lake:
            from django_leasequeue.spark import database, pipeline, report

            pipeline.run(
                lake,
                database.address(options["using"]),
                **{name: options[name] for name in ("consumer", "wanted_wait", "accept_loss", "adopt")},
                tenant_tag=conf.settings.LAKE.TENANT_TAG,
                tell=self.stdout.write,
            )
            hours = report.keep_figures(lake, options["using"])
            self.line(_("{number} hours of queues kept for the admin"), number=hours)

    def _report(self, options: dict[str, Any]) -> None:
        from django_leasequeue.spark import report

        here = options["lake"] and "://" not in options["lake"]
        without_spark = here and not options["remote"] and options["days"] is None
        with nullcontext() if without_spark else self._lake(options) as lake:
            read = report.in_directory(options["lake"]) if lake is None else report.by_spark(lake, options["days"])
            waiting = self._waiting(options["using"])
            with override("en"):  # all of the report is
                page = report.write(*read, options["output"], site=options["site"], waiting=waiting).absolute()
            self.line(_("Report: {page}"), page=page)
            if options["open"] and not webbrowser.open(page.as_uri()):
                self.stdout.write(_("No browser was found: open the file yourself."))

    @staticmethod
    def _waiting(using: str) -> str | None:
        """Return what the lake cannot read of a restored database; a report is written without a database too."""
        with suppress(StorageError, psycopg.Error, DatabaseError), connect(using) as connection:
            above = ConnectionExecutor(connection).run(above_horizon())
            return None if above is None else waiting_text(above)
        return None

    def _archive(self, options: dict[str, Any]) -> None:
        with self._lake(options) as lake:
            from django_leasequeue.spark import archive, database, layout

            source = database.address(options["using"])
            with layout.only_run(lake, source):
                made = archive.archive(lake, source, using=options["using"], tell=self.stdout.write)
            self.line(_("{number} slices archived"), number=len(made))
        if options["prune"]:
            with connect(options["using"]) as connection:
                done = partitions.maintain(connection)
                archive.note_pruned(connection, options["using"])
            self.line(_("{number} partitions dropped"), number=len(done.dropped))
            for name, reader in done.held.items():
                self.line(_("{name} is kept for {reader}"), name=name, reader=reader)

    def _replay(self, options: dict[str, Any]) -> None:
        # The lake itself is not needed for this.
        with self._lake({**options, "lake": options["lake"] or "unused"}) as lake:
            from django_leasequeue.spark import database, sink

            source = database.address(options["using"])
            letters = sink.dead_letters(lake.spark, source, options["table"]).where(options["where"])
            chosen = letters.count()
            if options["dry_run"]:
                self.line(_("{number} dead letters would be replayed"), number=chosen)
                return
            moved = sink.replay(
                letters,
                {**source, "maxPayloadBytes": str(conf.settings.MAX_PAYLOAD_BYTES)},
                **{name: options[name] for name in ("queue", "rate", "table", "write_id")},
            )
            self.line(_("{number} of {selected} selected dead letters replayed"), number=moved, selected=chosen)

    def _compact(self, options: dict[str, Any]) -> None:
        with self._lake(options) as lake:
            from django_leasequeue.spark import database, layout

            if lake.format != "delta":
                raise CommandError(_("Only a lake of Delta tables can be compacted; this one is of Parquet files."))
            with layout.only_run(lake, database.address(options["using"])):
                self.line(_("{number} files merged"), number=layout.maintain(lake))

    def _status(self, options: dict[str, Any]) -> None:
        for line in lake_status(options["using"]):
            self.stdout.write(line)
        if options["lake"] and Path(options["lake"]).is_dir():
            from django_leasequeue.spark import report

            for line in report.inventory(Path(options["lake"]), timezone.now()):
                self.stdout.write(line)

    def _forget(self, options: dict[str, Any]) -> None:
        gone = LakeConsumer.objects.using(options["using"]).filter(name=options["consumer"]).delete()
        if not gone[0]:
            raise failure(_("There is no consumer {consumer!r}."), consumer=options["consumer"])
        self.line(_("Retention waits for {consumer} no longer"), consumer=options["consumer"])
