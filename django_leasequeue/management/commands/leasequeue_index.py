"""``manage.py leasequeue_index``: indexes for searches by a value of the payload."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue import engine
from django_leasequeue.engine import search_index
from django_leasequeue.engine.pool import connect
from django_leasequeue.management import LeaseQueueCommand, add_database, by_owner, databases, failure, table


class Command(LeaseQueueCommand):
    """Make, list and drop indexes for searches."""

    help = gettext_noop(
        "Make searches by a value of the payload fast, in the admin and in Job.objects.filter(data__kwargs__order=7). "
        "An index is built while writers go on; every job that is enqueued costs a little more with it. Needs the owner"
        " of the tables."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="add|list|drop")
        for name, what in (("add", _("build an index")), ("drop", _("drop one")), ("list", _("those there are"))):
            action = actions.add_parser(name, help=what)
            add_database(action)
            if name == "list":
                action.add_argument("--json", action="store_true", help=_("print JSON"))
            else:
                action.add_argument(
                    "path", help=_("data.kwargs.order, data.order or meta.source; data: all that is in it")
                )

    def handle(self, *args: Any, **options: Any) -> None:
        for alias in databases(options):
            found = engine.run(search_index.search_indexes(), alias)
            with by_owner():
                getattr(self, f"_{options['action']}")(alias, found, options)

    def _list(self, alias: str, found: list[search_index.SearchIndex], options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps([{"database": alias, **each._asdict()} for each in found]))
            return
        rows = []
        for each in found:
            state = _("ready") if each.valid and each.path else _("its build did not end: add it again, or drop it")
            rows.append((each.path or each.name, state, f"{each.bytes / 1e6:.1f} MB", each.scans))
        self.stdout.write(table(("path", "state", "size", "used"), rows))

    def _add(self, alias: str, found: list[search_index.SearchIndex], options: dict[str, Any]) -> None:
        path = options["path"]
        search_index.parse(path)
        if any(each.path == path and each.valid for each in found):
            self.line(_("{database}: {path} has an index."), database=alias, path=path)
            return
        if len(found) >= search_index.MAX_INDEXES:
            raise failure(_("{database} has {number} such indexes: drop one first."), database=alias, number=len(found))
        self.line(_("{database}: the index of {path} is being built ..."), database=alias, path=path)
        with connect(alias) as connection:
            search_index.make(connection, path)
        self.note("add_index", alias, detail={"path": path})
        self.line(_("{database}: {path} has an index."), database=alias, path=path)

    def _drop(self, alias: str, found: list[search_index.SearchIndex], options: dict[str, Any]) -> None:
        path = options["path"]
        name = path if any(each.name == path for each in found) else search_index.name_of(path)
        gone = [each for each in found if each.name == name]
        if not gone:
            text = _("{database} has no index of {path}: 'list' shows those there are.")
            raise failure(text, database=alias, path=path)
        with connect(alias) as connection:
            search_index.drop(connection, gone[0])
        self.note("drop_index", alias, detail={"path": path})
        self.line(_("{database}: the index of {path} is gone."), database=alias, path=path)
