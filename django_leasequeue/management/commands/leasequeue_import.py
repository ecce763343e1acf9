"""``manage.py leasequeue_import jqueue URL QUEUE``: move the jobs of another queue's storage into a queue."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from django_leasequeue import Queue
from django_leasequeue.compat import jqueue_import
from django_leasequeue.management import LeaseQueueCommand


class Command(LeaseQueueCommand):
    """Move jobs of other queues here."""

    help = (
        "'jqueue' moves the jobs of a jqueue state file into a queue, each exactly once, also when it is killed and"
        " begun again. The file is marked: jqueue refuses it from then on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        sources = parser.add_subparsers(dest="source", required=True, metavar="jqueue")
        jqueue = sources.add_parser("jqueue", help="jobs of a jqueue state file")
        jqueue.add_argument("url", help="a path, file://..., s3://bucket/key or gs://bucket/key")
        jqueue.add_argument("queue", help="the queue; it is made with the preset jqueue if it is missing")
        jqueue.add_argument("--project", default="", help="the tenant (default: none)")
        jqueue.add_argument("--database", default=None, help="alias of the database (default: the queue's)")
        jqueue.add_argument(
            "--in-progress", action="store_true", help="move jobs that a worker has, too: they run again"
        )
        jqueue.add_argument("--dry-run", action="store_true", help="only say what it would do")

    def handle(self, *args: Any, **options: Any) -> None:
        act = jqueue_import.preview if options["dry_run"] else jqueue_import.move
        queue = Queue(options["queue"], project=options["project"], preset="jqueue", using=options["database"])
        moved = act(jqueue_import.open_file(options["url"]), queue, in_progress=options["in_progress"])
        if moved.before:
            self.stdout.write(f"Nothing to do: the {moved.jobs} jobs were moved before.")
            return
        if options["dry_run"]:
            self.stdout.write(f"would move {moved.jobs} jobs into {options['queue']}")
        else:
            self.stdout.write(f"Moved {moved.added} jobs into {options['queue']}; {moved.known} were there already.")
        if moved.in_progress:
            self.stdout.write(f"In progress were {moved.in_progress} of them: they are run again.")
        if moved.dead:
            self.stdout.write(f"Left {moved.dead} dead jobs in the file.")
