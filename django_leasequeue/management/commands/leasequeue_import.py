"""``manage.py leasequeue_import``: move jobs of jqueue's files, and schedules of Celery's beat, here."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue import Queue
from django_leasequeue.compat import celery_beat, jqueue_import
from django_leasequeue.management import LeaseQueueCommand, failure, table


class Command(LeaseQueueCommand):
    """Move jobs and schedules of other queues here."""

    help = gettext_noop(
        "'jqueue' moves the jobs of a jqueue state file into a queue, each exactly once, also when it is killed and"
        " begun again. The file is marked: jqueue refuses it from then on. 'celery-beat' makes recurring tasks of the"
        " schedules of django-celery-beat and of CELERY_BEAT_SCHEDULE; those that exist stay as they are."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        sources = parser.add_subparsers(dest="source", required=True, metavar="{jqueue,celery-beat}")
        jqueue = sources.add_parser("jqueue", help=_("jobs of a jqueue state file"))
        jqueue.add_argument("url", help=_("a path, file://..., s3://bucket/key or gs://bucket/key"))
        jqueue.add_argument("queue", help=_("the queue; it is made with the preset jqueue if it is missing"))
        jqueue.add_argument("--project", default="", help=_("the tenant (default: none)"))
        jqueue.add_argument("--database", help=_("alias of the database (default: the queue's)"))
        jqueue.add_argument(
            "--in-progress", action="store_true", help=_("move jobs that a worker has, too: they run again")
        )
        jqueue.add_argument("--dry-run", action="store_true", help=_("only say what it would do"))
        beat = sources.add_parser("celery-beat", help=_("schedules of Celery's beat"))
        beat.add_argument(
            "--map", action="append", default=[], metavar="OLD=NEW", help=_("a task has another path here")
        )
        aliases = list(connections)
        tables = _("the one with its tables")
        beat.add_argument("--database", dest="source_alias", default=DEFAULT_DB_ALIAS, choices=aliases, help=tables)
        beat.add_argument("--dry-run", action="store_true", help=_("only say what it would do"))

    def handle(self, *args: Any, **options: Any) -> None:
        (self._beat if options["source"] == "celery-beat" else self._jqueue)(options)

    def _beat(self, options: dict[str, Any]) -> None:
        if wrong := [pair for pair in options["map"] if not all(pair.partition("="))]:
            raise failure(_("--map takes OLD=NEW, two dotted paths; it is {given!r}."), given=wrong[0])
        renamed = {old: new for old, _, new in (pair.partition("=") for pair in options["map"])}
        lines = list(celery_beat.move(options["source_alias"], renamed, dry_run=options["dry_run"]))
        self.stdout.write(table(("name", "task", "schedule", "zone", "outcome"), lines))
        counts = (f"{sum(line.outcome.startswith(way) for line in lines)} {way}" for way in celery_beat.OUTCOMES)
        self.stdout.write(f"{', '.join(counts)}.{' Nothing was written.' if options['dry_run'] else ''}")

    def _jqueue(self, options: dict[str, Any]) -> None:
        act = jqueue_import.preview if options["dry_run"] else jqueue_import.move
        queue = Queue(options["queue"], project=options["project"], preset="jqueue", using=options["database"])
        moved = act(jqueue_import.open_file(options["url"]), queue, in_progress=options["in_progress"])
        if moved.before:
            self.line(_("Nothing to do: the {number} jobs were moved before."), number=moved.jobs)
            return
        if options["dry_run"]:
            self.line(_("would move {number} jobs into {queue}"), number=moved.jobs, queue=options["queue"])
        else:
            text = _("Moved {added} jobs into {queue}; {known} were there already.")
            self.line(text, added=moved.added, queue=options["queue"], known=moved.known)
        if moved.in_progress:
            self.line(_("{number} of them were in progress: they run again."), number=moved.in_progress)
        if moved.dead:
            self.line(_("Left {number} dead jobs in the file."), number=moved.dead)
