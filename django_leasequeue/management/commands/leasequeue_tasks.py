"""``manage.py leasequeue_tasks``: pause tasks, resume them, list the paused ones."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue import engine
from django_leasequeue.engine import audit
from django_leasequeue.engine.jobs.operators import change_task
from django_leasequeue.engine.jobs.pausing import list_paused
from django_leasequeue.management import LeaseQueueCommand, add_database, databases, table
from django_leasequeue.tasks.exceptions import TaskNotFound
from django_leasequeue.tasks.lookup import find_task


class Command(LeaseQueueCommand):
    """Pause and resume tasks."""

    help = gettext_noop(
        "Pause a task: no further job of it starts, in any queue, until 'resume'. Running jobs go on, and it can be"
        " enqueued. 'list' shows the paused tasks."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        shared = CommandParser(add_help=False)
        add_database(shared)
        shared.add_argument("--project", default="", help=_("the tenant (default: none)"))
        actions = parser.add_subparsers(dest="action", required=True, metavar="pause|resume|list")
        for action, words in (
            ("pause", _("start no further job of a task")),
            ("resume", _("let its jobs start again")),
        ):
            named = actions.add_parser(action, parents=[shared], help=words)
            named.add_argument("name", help=_("the import path of the task, such as shop.tasks.send_receipt"))
        listing = actions.add_parser("list", parents=[shared], help=_("paused tasks, since when and by whom"))
        listing.add_argument("--json", action="store_true", help=_("print JSON"))

    def handle(self, *args: Any, **options: Any) -> None:
        action, project, aliases = options["action"], options["project"], databases(options)
        if action == "list":
            found = [(alias, *each[:4]) for alias in aliases for each in engine.run(list_paused(project), alias)]
            columns = ("database", "project", "name", "paused_at", "paused_by")
            if options["json"]:
                lines = [dict(zip(columns, row, strict=True)) for row in found]
                self.stdout.write(json.dumps(lines, default=str))
            else:
                self.stdout.write(table([column.replace("_", " ") for column in columns], found))
            return
        try:
            find_task(options["name"])
        except TaskNotFound as error:  # its workers may have other code
            self.stderr.write(str(error))
        done = [change_task(action, options["name"], project, audit.shell(), alias) for alias in aliases]
        if action == "pause":
            text = _("{task} is paused") if any(done) else _("{task} is paused, as before")
        else:
            text = _("{task} goes on") if any(done) else _("{task} goes on, as before")
        self.line(text, task=options["name"])
