"""``manage.py leasequeue_queues``: list queues, show and change their options, make them as the settings declare."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue import conf, engine
from django_leasequeue.engine.queues import declared, moving, presets, routing
from django_leasequeue.exceptions import QueueNotFound
from django_leasequeue.management import LeaseQueueCommand, failure, table

_QUEUE = attrgetter("queue", "type", "ready", "delayed", "in_flight", "dead", "records")


class Command(LeaseQueueCommand):
    """List, make and change queues."""

    help = gettext_noop(
        "Look at queues and change them. 'sync' makes the queues that the settings declare and gives the others the"
        " options that the settings name; 'list' counts jobs; 'show' prints a queue's options; 'set' changes some of"
        " them; 'pause' and 'resume' stop and start claims. 'move' lets new jobs go to another database, 'moves' says"
        " how many are left in the old one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        shared = CommandParser(add_help=False)
        shared.add_argument("--database", help=_("only this database (default: all)"))
        tenant = CommandParser(add_help=False)
        tenant.add_argument("--project", default="", help=_("the tenant (default: none)"))
        names = "sync|list|show|set|pause|resume|move|moves"
        actions = parser.add_subparsers(dest="action", required=True, metavar=names)
        sync = actions.add_parser("sync", parents=[shared], help=_("make queues as the settings declare them"))
        sync.add_argument(
            "--dry-run", action="store_true", help=_("only say what would change; exit code 1 if anything")
        )
        listing = actions.add_parser("list", parents=[shared, tenant], help=_("queues with their figures"))
        listing.add_argument("--prefix", default="", help=_("only names that begin so"))
        listing.add_argument("--after", default="", help=_("only names behind this one"))
        listing.add_argument("--size", type=int, default=100, help=_("how many at most (%(default)s)"))
        listing.add_argument("--json", action="store_true", help=_("print JSON"))
        show = actions.add_parser("show", parents=[shared, tenant], help=_("one queue with its options"))
        show.add_argument("name")
        show.add_argument("--json", action="store_true", help=_("print JSON"))
        change = actions.add_parser("set", parents=[shared, tenant], help=_("change options; the others stay"))
        change.add_argument("name")
        such_as = _("such as lease_ms=60000 dead_letter=self")
        change.add_argument("options", nargs="*", metavar="OPTION=VALUE", help=such_as)
        preset = _("first take all options of this preset (goes before the name)")
        change.add_argument("--preset", choices=sorted(presets.PRESETS), help=preset)
        for action, words in (("pause", _("stop claims; enqueue and settle go on")), ("resume", _("let claims go on"))):
            actions.add_parser(action, parents=[shared, tenant], help=words).add_argument("name")
        move = actions.add_parser(
            "move", parents=[tenant], help=_("let new jobs go to another database; the others drain")
        )
        move.add_argument("name")
        move.add_argument("--to", required=True, metavar="ALIAS", help=_("alias of the database"))
        actions.add_parser("moves", help=_("queues that were moved, and what is left where they were"))

    def handle(self, *args: Any, **options: Any) -> None:
        act = getattr(self, f"_{options['action']}")
        if options["action"] in ("move", "moves"):
            act(options)
            return
        project, name, given = options.get("project", ""), options.get("name"), options["database"]
        aliases = [given] if given else routing.aliases()
        if name is not None and given is None:
            # While a queue moves both of its databases are meant.
            both = {routing.alias_of(project, name, adding=adding): None for adding in (True, False)}
            aliases = list(both) if options["action"] != "show" else list(both)[:1]
        failed = []
        for alias in aliases:
            if len(aliases) > 1:
                self.line(_("Database {name}"), name=alias)
            try:
                act(alias, options)
            except CommandError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _move(self, options: dict[str, Any]) -> None:
        moved = moving.move(options["name"], options["to"], options["project"])
        for each in moved:
            detail = {"from": each.source, "to": each.alias}
            self.note("move_queue", conf.settings.DATABASE, project=each.project, queue=each.name, detail=detail)
        self._tell(moved)

    def _moves(self, options: dict[str, Any]) -> None:
        self._tell(moving.moves())

    def _tell(self, moved: list[moving.Move]) -> None:
        rows = []
        for each in moved:
            name = f"{each.project}/{each.name}" if each.project else each.name
            state, left = "draining" if each.draining else "done", "unknown" if each.left is None else each.left
            rows.append((name, each.source, each.alias, state, left))
        self.stdout.write(table(("queue", "from", "to", "", "jobs left"), rows))
        for each in moved:
            if each.draining and each.writers is None and each.left is not None:
                text = _("{queue} drains at the earliest {seconds} s after the move.")
                self.line(text, queue=each.name, seconds=f"{routing.SETTLED:g}")
            for writer in each.writers or []:
                text = _(
                    "{queue} waits for a transaction on {database} that began before every process knew of the move"
                    " and may still add jobs: {writer}."
                )
                self.line(text, queue=each.name, database=each.source, writer=writer)

    def _sync(self, using: str, options: dict[str, Any]) -> None:
        found = declared.drift(using) if options["dry_run"] else self._apply(using)
        for item in found:
            word = "would " if options["dry_run"] else ""
            action = "skip" if item.blocked else "make" if item.missing else "change"
            self.stdout.write(f"{word}{action} {item}")
        blocked = [item.declaration.name for item in found if item.blocked]
        if not found:
            self.stdout.write(_("The database is as the settings declare."))
        if blocked:
            raise failure(_("Left as they are: {names}."), names=", ".join(blocked))
        if options["dry_run"] and found:
            raise failure(_("{number} queues differ."), number=len(found), returncode=1)

    def _apply(self, using: str) -> list[declared.Drift]:
        with transaction.atomic(using=using):
            found = declared.apply(using)
            for item in found:
                place = {"project": item.declaration.project, "queue": item.declaration.name}
                if item.missing:
                    self.note("create_queue", using, **place)
                elif item.blocked is None:
                    self.note("edit_queue", using, **place, detail={"changed": item.options})
        return found

    def _list(self, using: str, options: dict[str, Any]) -> None:
        project, wanted = options["project"], {name: options[name] for name in ("after", "prefix", "size")}
        lines = engine.run(engine.list_queues(project=project, **wanted), using)
        counts = engine.run(engine.counts_of([line.name for line in lines], project=project), using)
        rows = [counts[line.name] for line in lines if line.name in counts]
        if options["json"]:
            self.stdout.write(json.dumps([row._asdict() for row in rows], default=str))
            return
        head = ("name", "type", "ready", "delayed", "in flight", "dead", "records", "oldest", "")
        self.stdout.write(table(head, [(*_QUEUE(row), row.oldest_at, _notes(row)) for row in rows]))

    def _show(self, using: str, options: dict[str, Any]) -> None:
        info = engine.run(engine.get(options["name"], project=options["project"]), using)
        if info is None:
            raise QueueNotFound(options["name"], options["project"])
        counts = engine.run(engine.counts(info.name, project=info.project), using)
        if options["json"]:
            self.stdout.write(json.dumps({**counts._asdict(), "config": info.config}, default=str))
            return
        for name, value in counts._asdict().items():
            self.stdout.write(f"{name}: {'-' if value is None else value}")
        self.stdout.write(_("options:"))
        for name, value in info.config.items():
            default = presets.DEFAULTS.get(name)
            note = "" if value == default else "  " + _("(default {value})").format(value=json.dumps(default))
            self.stdout.write(f"  {name} = {json.dumps(value)}{note}")

    def _set(self, using: str, options: dict[str, Any]) -> None:
        given = dict(presets.PRESETS[options["preset"]]) if options["preset"] else {}
        for text in options["options"]:
            name, found, value = text.partition("=")
            if not found:
                raise failure(_("{given!r} is not OPTION=VALUE."), given=text)
            given[name.strip()] = _value(value.strip())
        if not given:
            raise CommandError(_("Nothing to change: name options as OPTION=VALUE, or a --preset."))
        with transaction.atomic(using=using):
            before = engine.run(engine.get(options["name"], project=options["project"]), using)
            after = declared.change(options["name"], given, options["project"], using)
            old = {} if before is None else before.config
            changed = {name: [old.get(name), value] for name, value in after.config.items() if old.get(name) != value}
            if changed:
                place = {"project": options["project"], "queue": options["name"]}
                self.note("edit_queue", using, **place, detail={"changed": changed})
        for name, (was, value) in changed.items():
            self.stdout.write(f"{name}: {json.dumps(was)} -> {json.dumps(value)}")

    def _pause(self, using: str, options: dict[str, Any]) -> None:
        paused = options["action"] == "pause"
        with transaction.atomic(using=using):
            engine.run(engine.pause(options["name"], project=options["project"], paused=paused), using)
            self.note(options["action"], using, project=options["project"], queue=options["name"])
        self.stdout.write(f"{options['name']} {'is paused' if paused else 'goes on'}")

    _resume = _pause


def _notes(row: engine.Counts) -> str:
    return " ".join(filter(None, ("paused" if row.paused_at else "", "" if row.exact else "estimated")))


def _value(text: str) -> Any:
    """Return a value as typed on a command line: JSON where it is some, else the text."""
    if text.lower() in ("none", "null", ""):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return json.loads(text)
    except ValueError:
        return text
