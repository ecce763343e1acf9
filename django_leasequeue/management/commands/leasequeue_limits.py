"""``manage.py leasequeue_limits``: list limits, set their values, give them back to the code."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue import conf, engine
from django_leasequeue.engine import LimitValues
from django_leasequeue.engine.flow.figures import allows, changed, given_back, list_limits
from django_leasequeue.management import LeaseQueueCommand, failure, number, table
from django_leasequeue.models import Limit


class Command(LeaseQueueCommand):
    """List and set limits."""

    help = gettext_noop(
        "Look at limits and set them. 'list' shows what each allows and counts what waits for it; 'set' gives one new"
        " values, which the code's do not replace; 'reset' gives it back to the code."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        shared = CommandParser(add_help=False)
        shared.add_argument("--database", help=_("alias of the database (default: LEASEQUEUE['DATABASE'])"))
        shared.add_argument("--project", default="", help=_("the tenant (default: none)"))
        actions = parser.add_subparsers(dest="action", required=True, metavar="list|set|reset")
        listing = actions.add_parser("list", parents=[shared], help=_("limits with their figures"))
        listing.add_argument("--after", default="", help=_("only names behind this one"))
        listing.add_argument("--size", type=int, default=100, help=_("how many at most (%(default)s)"))
        listing.add_argument("--json", action="store_true", help=_("print JSON"))
        change = actions.add_parser("set", parents=[shared], help=_("set all values; what is left out does not limit"))
        change.add_argument("name")
        change.add_argument("--concurrency", type=int, metavar="N", help=_("jobs of a key at once"))
        change.add_argument("--rate", type=int, metavar="N", help=_("starts of a key in the time --per"))
        change.add_argument("--per", type=number, metavar="SECONDS", help=_("the time of --rate"))
        change.add_argument("--burst", type=int, default=0, metavar="N", help=_("how many more may start at once"))
        change.add_argument("--fair", action="store_true", help=_("keys take turns; needs --concurrency"))
        change.add_argument("--unlimited", action="store_true", help=_("let everything pass, instead of the others"))
        reset = actions.add_parser("reset", parents=[shared], help=_("give a limit back to the code"))
        reset.add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"_{options['action']}")(options["database"] or conf.settings.DATABASE, options)

    def _list(self, using: str, options: dict[str, Any]) -> None:
        after = (options["project"], options["after"])
        found = engine.run(list_limits(project=options["project"], after=after, size=options["size"]), using)
        if options["json"]:
            self.stdout.write(json.dumps([line._asdict() for line in found], default=str))
            return
        rows = [
            (line.name, allows(line.values), "operator" if line.pinned else "code", line.keys, line.waiting, line.taken)
            for line in found
        ]
        self.stdout.write(table(("name", "allows", "set by", "keys", "waiting", "slots taken"), rows))

    def _set(self, using: str, options: dict[str, Any]) -> None:
        per = None if options["per"] is None else round(options["per"] * 1_000)
        name, concurrency, rate, burst = (options[each] for each in ("name", "concurrency", "rate", "burst"))
        values = LimitValues(name, concurrency, rate, per, burst, options["fair"])
        if options["unlimited"] is not (values == LimitValues(values.name)):
            raise CommandError(_("Say what to limit: --concurrency, or --rate and --per. Or --unlimited: no limit."))
        before = self._before(using, options)
        differs = changed(before, values)
        with transaction.atomic(using=using):
            done = engine.run(engine.set_limits([values], project=options["project"]), using)
            if done:
                self._note("set_limit", using, options, differs)
        for name, (was, value) in differs.items():
            self.stdout.write(f"{name}: {json.dumps(was)} -> {json.dumps(value)}")
        if not differs:
            text = _("{limit} stays as it is, an operator has set it now.") if done else _("{limit} stays as it is.")
            self.line(text, limit=values.name)

    def _reset(self, using: str, options: dict[str, Any]) -> None:
        before = self._before(using, options)
        with transaction.atomic(using=using):
            done = engine.run(engine.reset_limit(options["name"], project=options["project"]), using)
            if done:
                self._note("reset_limit", using, options, changed(before, LimitValues.of(done)))
        text = _("{limit} has the code's values already.").format(limit=options["name"])
        self.stdout.write(given_back(options["name"], done) if done else text)

    def _note(self, action: str, using: str, options: dict[str, Any], differs: dict[str, list[Any]]) -> None:
        detail = {"limit": options["name"], "changed": differs}
        self.note(action, using, project=options["project"], detail=detail)

    def _before(self, using: str, options: dict[str, Any]) -> LimitValues:
        project, name = options["project"], options["name"]
        found = Limit.objects.using(using).filter(project=project, name=name).first()
        if found is None:
            text = _("There is no limit {name!r}: the first call that names it makes it; 'list' shows those there are.")
            raise failure(text, name=f"{project}/{name}" if project else name)
        return LimitValues.of(found)
