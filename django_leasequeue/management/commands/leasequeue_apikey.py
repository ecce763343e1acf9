"""``manage.py leasequeue_apikey``: keys of the HTTP APIs."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue import conf
from django_leasequeue.engine import audit
from django_leasequeue.http.access import create_key, revoke_key, rotate_key
from django_leasequeue.management import LeaseQueueCommand, failure, number
from django_leasequeue.models import ApiKey, ApiScope

#: A hundred years.
MAX_DAYS = 36_525


class Command(LeaseQueueCommand):
    """Make, list, revoke and rotate API keys."""

    help = gettext_noop("Make, list, revoke and rotate keys of the HTTP APIs. A key is shown once, when it is made.")

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help=_("make a key and print it"))
        create.add_argument("name", help=_("who uses it, and for what"))
        scopes = _("comma-separated: {scopes} (default: %(default)s)").format(scopes=", ".join(ApiScope.values))
        create.add_argument("--scopes", default="read,write", help=scopes)
        begin_so = _("only topics that begin so; may be repeated")
        create.add_argument("--topic", action="append", default=[], metavar="PREFIX", help=begin_so)
        create.add_argument("--project", default="", help=_("the tenant it belongs to"))
        create.add_argument("--days", type=number, help=_("days until it expires (default: never)"))
        create.add_argument("--rate", type=int, metavar="N", help=_("requests a second"))
        listing = actions.add_parser("list", help=_("list keys, never their secrets"))
        listing.add_argument("--all", action="store_true", help=_("revoked and expired ones too"))
        key = _("the key's prefix (the part between the underscores) or number, see list")
        actions.add_parser("revoke", help=_("make a key useless, for good")).add_argument("key", help=key)
        renewed = _("give a key a new secret and print it; the old one stops working")
        actions.add_parser("rotate", help=renewed).add_argument("key", help=key)

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        getattr(self, f"_{action}")(options)

    def _create(self, options: dict[str, Any]) -> None:
        scopes = [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
        unknown = sorted(set(scopes) - set(ApiScope.values))
        if unknown or not scopes:
            text = _("--scopes takes {scopes}; it is {given!r}.")
            raise failure(text, scopes=", ".join(ApiScope.values), given=options["scopes"])
        if options["days"] is not None and not 0 < options["days"] <= MAX_DAYS:
            raise failure(_("--days must be more than 0 and at most {most}."), most=MAX_DAYS)
        expires_at = None if options["days"] is None else timezone.now() + timedelta(days=options["days"])
        try:
            token = create_key(
                options["name"],
                scopes,
                topics=options["topic"],
                project=options["project"],
                expires_at=expires_at,
                rate_per_second=options["rate"],
                using=conf.settings.DATABASE,
                by=audit.shell(),
            )[1]
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self._show(token)

    def _show(self, token: str) -> None:
        # The key alone on standard output, so that a script can take it.
        self.stderr.write(_("Keep this key now: it is not stored and cannot be shown again."))
        self.stdout.write(token)

    def _list(self, options: dict[str, Any]) -> None:
        for key in ApiKey.objects.using(conf.settings.DATABASE).order_by("id"):
            if key.state != "active" and not options["all"]:
                continue
            used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else _("never used")
            topics = " ".join(key.topics) or _("(all topics)")
            values = (key.pk, key.prefix, key.state, ",".join(key.scopes), topics, key.project or "-", used, key.name)
            self.stdout.write("\t".join(map(str, values)))

    def _find(self, word: str) -> ApiKey:
        keys = ApiKey.objects.using(conf.settings.DATABASE)
        found = keys.filter(prefix=word).first() or (keys.filter(pk=int(word)).first() if word.isdecimal() else None)
        if found is None:
            raise failure(_("There is no key {key!r}: `leasequeue_apikey list --all` shows them."), key=word)
        return found

    def _revoke(self, options: dict[str, Any]) -> None:
        key = self._find(options["key"])
        revoke_key(key, by=audit.shell())
        self.line(_("Revoked {key}. Servers take up to KEY_CACHE_SECONDS to notice."), key=f"{key.prefix} ({key.name})")

    def _rotate(self, options: dict[str, Any]) -> None:
        key = self._find(options["key"])
        if key.revoked_at is not None:
            raise failure(_("{key} is revoked: make a new key."), key=key.prefix)
        self._show(rotate_key(key, by=audit.shell()))
