"""``manage.py leasequeue_dlq``: look at dead letters, retry, redrive, discard and export them."""

from __future__ import annotations

import json
import sys
import time
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue import conf, engine
from django_leasequeue.conf.loglines import one_line
from django_leasequeue.engine import audit
from django_leasequeue.engine.dead import export as exporting
from django_leasequeue.engine.dead.action import CONFLICTS, DISCARD, KINDS, REDRIVE, check_action
from django_leasequeue.engine.dead.bulkoperation import MAX_SELECTION, Asked, change, run_batch, start
from django_leasequeue.engine.dead.filter import DeadFilter, from_values
from django_leasequeue.engine.dead.triage import Preview, dead_groups, dead_page, preview
from django_leasequeue.engine.limits import check_seqs
from django_leasequeue.engine.queues import routing
from django_leasequeue.management import LeaseQueueCommand, failure, number, table
from django_leasequeue.models import BulkOperation, Queue

#: Seconds between two looks at an operation.
_LOOK = 0.5
#: Values of a line, before and behind the error.
_CAUSE, _TIMES = attrgetter("queue", "task", "error_type"), attrgetter("first_at", "last_at", "fingerprint")
_LETTER = attrgetter("seq", "dead_at", "queue", "name", "error_type")


def _short(error: str | None) -> str:
    return " ".join((error or "").split())[:60]


class Command(LeaseQueueCommand):
    """List, retry, redrive, discard and export dead letters."""

    help = gettext_noop(
        "Dead letters: 'groups' shows them by cause, 'list' one by one, 'export' writes them all; 'retry', 'redrive'"
        " and 'discard' do something with everything that the filter matches, or with the jobs named by --seq. Those"
        " are carried out by the reaper; --wait follows it, --here does it in this process."
    )

    @cached_property
    def _using(self) -> str:
        return conf.settings.DATABASE

    def add_arguments(self, parser: CommandParser) -> None:
        wanted = CommandParser(add_help=False)
        wanted.add_argument("--database", help=_("alias of the database (default: LEASEQUEUE['DATABASE'])"))
        wanted.add_argument("--queue", default="", help=_("only of this queue or dead-letter topic"))
        wanted.add_argument("--project", default="", help=_("only of this tenant; - for the one without a name"))
        wanted.add_argument("--task", default="", help=_("only of this task"))
        wanted.add_argument("--fingerprint", default="", help=_("only of this group"))
        wanted.add_argument("--tag", default="", help=_("only with this tag"))
        wanted.add_argument(
            "--since", default="", help=_("died since then: 2026-11-20T18:30 (UTC), or 90min, 2h, 7d ago")
        )
        wanted.add_argument("--until", default="", help=_("died until then"))
        wanted.add_argument("--deliveries", default="", help="3, >=3, 3..5")
        wanted.add_argument("--text", default="", help=_("a part of the error, the task or the key, in any case"))
        wanted.add_argument(
            "--payload", action="append", default=[], help=_("such as data.kwargs.customer = 17; up to five times")
        )
        plain = CommandParser(add_help=False)
        plain.add_argument("--json", action="store_true", help=_("print JSON"))
        page = CommandParser(add_help=False)
        page.add_argument("--after", help=_("'next' of the page before"))
        doing = CommandParser(add_help=False)
        doing.add_argument("--seq", type=int, action="append", help=_("only this job; may be given again"))
        doing.add_argument("--reason", default="", help=_("why; a discard needs one"))
        doing.add_argument("--rate", type=number, help=_("jobs a second (default: as fast as it goes)"))
        doing.add_argument("--yes", action="store_true", help=_("do not ask"))
        doing.add_argument("--dry-run", action="store_true", help=_("only say what it would touch"))
        how = doing.add_mutually_exclusive_group()
        how.add_argument("--wait", action="store_true", help=_("wait until the reaper has done it"))
        how.add_argument("--here", action="store_true", help=_("do it in this process, whether a reaper runs or not"))
        jitter = CommandParser(add_help=False)
        random_wait = _("each job waits a random time up to it, in seconds")
        jitter.add_argument("--jitter", type=number, default=0, help=random_wait)
        from_step = _("this step and those after it run again; only jobs with it")
        jitter.add_argument("--from-step", metavar="NAME", help=from_step)
        actions = parser.add_subparsers(
            dest="action", required=True, metavar="|".join(["groups", "list", *KINDS, "export"])
        )
        groups = actions.add_parser("groups", parents=[wanted, plain, page], help=_("dead letters by cause"))
        groups.add_argument("--size", type=int, default=25, help=_("groups at most (%(default)s)"))
        listing = actions.add_parser("list", parents=[wanted, plain, page], help=_("dead letters, the newest first"))
        listing.add_argument("--size", type=int, default=50, help=_("dead letters at most (%(default)s)"))
        listing.add_argument("--with-payload", action="store_true", help=_("with data, meta and errors (JSON only)"))
        actions.add_parser("retry", parents=[wanted, plain, doing, jitter], help=_("back to their queues"))
        redrive = actions.add_parser("redrive", parents=[wanted, plain, doing, jitter], help=_("into another queue"))
        redrive.add_argument("--to", required=True, metavar="QUEUE", help=_("the queue"))
        actions.add_parser("discard", parents=[wanted, plain, doing], help=_("remove them for good"))
        export = actions.add_parser("export", parents=[wanted, plain], help=_("all of them, as CSV or JSON Lines"))
        export.add_argument("--format", choices=sorted(exporting.KINDS), help=_("default: csv; with --json jsonl"))
        export.add_argument("--output", default="-", metavar="FILE", help=_("default: standard output"))

    def handle(self, *args: Any, **options: Any) -> None:
        action = options["action"]
        if options["database"]:
            self._using = options["database"]
        names = ("queue", "project", "task", "fingerprint", "tag", "since", "until", "deliveries", "text")
        wanted = from_values({**{name: [options[name]] for name in names}, "payload": options["payload"]})
        name = options["queue"]
        if name and not Queue.objects.using(self._using).filter(name=name).exists():
            self.stderr.write(_("There is no queue {queue}.").format(queue=name))
        if action in KINDS:
            self._do(action, wanted, options)
        else:
            getattr(self, f"_{action}")(wanted, options)

    def _print(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, default=str, ensure_ascii=False))

    def _groups(self, wanted: DeadFilter, options: dict[str, Any]) -> None:
        found = engine.run(dead_groups(wanted, after=options["after"], size=options["size"]), self._using)
        if options["json"]:
            groups = [group._asdict() for group in found.groups]
            bounds = {"bars_from": found.bars_from.isoformat(), "bars_to": found.bars_to.isoformat()}
            self._print({"groups": groups, "next": found.next, "complete": found.complete, **bounds})
            return
        head = ("count", "queue", "task", "error", "message", "first", "last", "fingerprint")
        rows = [
            (f"{each.dead_letters}{'+' if each.capped else ''}", *_CAUSE(each), _short(each.error), *_TIMES(each))
            for each in found.groups
        ]
        self.stdout.write(table(head, rows))
        if found.next:
            self.line(_("More: --after {cursor}"), cursor=found.next)
        elif not found.complete:
            self.stdout.write(_("There is more than one call looks at: narrow the filter."))

    def _list(self, wanted: DeadFilter, options: dict[str, Any]) -> None:
        payload = options["with_payload"] and options["json"]
        page = dead_page(wanted, after=options["after"], size=options["size"], payload=payload)
        found = engine.run(page, self._using)
        if options["json"]:
            rows = [exporting.row(letter, values=True) for letter in found.rows]
            if not payload:
                for each in rows:
                    for name in ("data", "meta", "errors"):
                        del each[name]
            self._print({"dead_letters": rows, "next": found.next, "looked_at": found.looked_at})
            return
        head = ("seq", "died", "queue", "task", "error", "message", "deliveries", "key")
        lines = [(*_LETTER(each), _short(each.error), each.deliveries, each.key) for each in found.rows]
        self.stdout.write(table(head, lines))
        if found.next:
            self.line(_("Looked at {number}. More: --after {cursor}"), number=found.looked_at, cursor=found.next)

    def _export(self, wanted: DeadFilter, options: dict[str, Any]) -> None:
        kind = options["format"] or ("jsonl" if options["json"] else "csv")
        letters = exporting.dead_letters(wanted.frozen(engine.clock.now()), values=True, using=self._using)
        lines = exporting.lines(letters, exporting.COLUMNS, kind)
        if options["output"] == "-":
            for line in lines:
                self.stdout.write(line, ending="")
            return
        try:
            with open(options["output"], "w", encoding="utf-8", newline="") as file:  # noqa: PTH123  (a path or a device)
                file.writelines(lines)
        except OSError as error:
            text = _("--output {path} cannot be written: {error}.")
            raise failure(text, path=options["output"], error=error.strerror) from error

    def _do(self, kind: str, wanted: DeadFilter, options: dict[str, Any]) -> None:
        to = options["to"] if kind == REDRIVE else None
        from_step = options.get("from_step")
        check_action(kind, to, options["reason"], from_step)
        seqs = options["seq"] and check_seqs(options["seq"], MAX_SELECTION)
        routing.check_redrive(wanted.project or "", to, self._using)
        found = engine.run(preview(wanted, seqs=seqs), self._using)
        if options["dry_run"] or not (found.matches or found.capped):
            self._tell(found, options)
            return
        if not options["yes"]:
            self._tell(found, {**options, "json": False})
            self._ask(kind, found)
        jitter_ms = 0 if kind == DISCARD else round(options["jitter"] * 1_000)
        asked = Asked(kind, wanted, seqs, to, options["rate"], jitter_ms, options["reason"], None, from_step)
        record = partial(self.note, using=self._using)
        number = start(asked, found, audit.shell(), record, self._using, {"to": to, "rate": asked.rate})
        self._follow(number, options)

    def _tell(self, found: Preview, options: dict[str, Any]) -> None:
        if options["json"]:
            parts = {name: dict(getattr(found, name)) for name in ("queues", "tasks", "errors")}
            samples = [row.seq for row in found.samples]
            self._print({"matches": found.matches, "capped": found.capped, **parts, "samples": samples})
            return
        text = _("{number} or more dead letters match.") if found.capped else _("{number} dead letters match.")
        self.line(text, number=found.matches)
        for name, counts in (("queue", found.queues), ("task", found.tasks), ("error", found.errors)):
            for word, count in counts:
                self.stdout.write(f"  {name} {one_line(str(word))}: {count}")

    def _ask(self, kind: str, found: Preview) -> None:
        if not sys.stdin.isatty():
            raise CommandError(_("There is no terminal to ask on: say --yes, or --dry-run to see what it would touch."))
        if input(_("Type {action} to do it: ").format(action=kind)).strip() != kind:
            raise CommandError(_("Nothing was done."))

    def _follow(self, number: int, options: dict[str, Any]) -> None:
        try:
            while options["here"] or options["wait"]:
                more = options["here"] and engine.run(run_batch(number), self._using)
                if not BulkOperation.objects.using(self._using).get(pk=number).is_active:
                    break
                if not more:
                    time.sleep(_LOOK)
        except KeyboardInterrupt:
            if options["here"]:  # the reaper was not asked to go on
                self._pause(number)
                text = _("Operation {number} is paused: the admin resumes or cancels it.")
                self.stderr.write(text.format(number=number))
            sys.exit(130)
        made = BulkOperation.objects.using(self._using).get(pk=number)
        if options["json"]:
            said = {name: getattr(made, name) for name in ("state", "expected", "done", "error")}
            self._print({"operation": number, **said, "conflicts": made.conflict_counts})
        elif made.is_active:
            self.line(_("Operation {number} is asked for; the reaper carries it out."), number=number)
        else:
            state = _(made.get_state_display())
            text = _("Operation {number} is {state}: {done} done, {left} left alone.")
            self.line(text, number=number, state=state, done=made.done, left=made.conflicts)
            for why, count in made.conflict_counts.items():
                self.stdout.write(f"  {CONFLICTS.get(why, why)}: {count}")
        if made.state == "failed":
            raise CommandError(made.error)

    def _pause(self, number: int) -> None:
        change(number, "pause", partial(self.note, using=self._using), self._using)
