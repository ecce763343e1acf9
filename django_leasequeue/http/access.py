"""What a request may do (scopes, topics, project), and API keys: made, recognised, trusted for a moment."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import transaction
from django.utils import timezone

from .. import conf
from ..conf import process
from ..engine import LeasedJob, audit, clock
from ..engine.dead.redaction import readable, redact
from ..engine.operation import Statements, operation
from ..engine.outage import passes
from ..models.operators import ApiKey, ApiScope
from . import payload

if TYPE_CHECKING:  # it loads REST framework, which the admin's page of keys does without
    from .errors import ApiError

READ, WRITE, DELETE, ADMIN, PROJECTS, EMIT, PAYLOADS, METRICS = (str(scope) for scope in ApiScope.values)
ALL_SCOPES: frozenset[str] = frozenset(ApiScope.values)
#: The Django permission that stands for a scope, for users whom the host has logged in. None stands for ``projects``: a
#: superuser has every permission, and the right to act for all projects is given explicitly.
PERMISSIONS = {
    READ: "leasequeue.view_queue",
    WRITE: "leasequeue.add_job",
    DELETE: "leasequeue.delete_queue",
    ADMIN: "leasequeue.change_queue",
    EMIT: "leasequeue.emit_event",
    PAYLOADS: "leasequeue.view_payload",
    METRICS: "leasequeue.view_queue",
}


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of one request.

    ``who`` names the caller in logs and counts its requests; ``prefixes`` empty means every topic; ``rate`` is requests
    a second, ``None`` for the default. The scope ``projects`` (to act for other projects than ``project``) cannot stand
    beside prefixes.
    """

    who: str
    scopes: frozenset[str]
    prefixes: tuple[str, ...] = ()
    project: str = ""
    rate: int | None = None

    def __post_init__(self) -> None:
        if PROJECTS in self.scopes and self.prefixes:
            message = "The scope 'projects' and prefixes exclude each other: prefixes are of one project's topics."
            raise ValueError(message)

    def missing(self, needed: Iterable[str]) -> list[str]:
        return sorted(set(needed) - self.scopes)

    def sees(self, topic: str) -> bool:
        return not self.prefixes or topic.startswith(self.prefixes)

    def show(self, text: str | None, *, task: str | None, queue: str, kind: str = "data") -> Any:
        """Return stored JSON as the caller may see it: of a task without secrets, unless it has ``payloads``."""
        if text is None or task is None or PAYLOADS in self.scopes:
            return payload.raw(text)
        return redact(readable(text), kind=kind, queue=queue, task=task)

    def may_claim(self, jobs: Iterable[LeasedJob]) -> bool:
        """Return whether the caller may have these jobs: tasks need ``payloads``."""
        return PAYLOADS in self.scopes or all(job.name is None for job in jobs)


OPEN = Access("everybody", ALL_SCOPES)
#: Why a claim is refused.
HOLDS_TASKS = "This queue holds tasks. To claim them a key needs the scope payloads, which this one does not have."
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="leasequeue"'}


def unauthorized(why: str) -> ApiError:
    """Return the error for a request whose key is missing or not good."""
    from .errors import ApiError

    how = (
        "Send a key as 'Authorization: Bearer <key>'. Keys are made with 'manage.py leasequeue_apikey create'. To open"
        " the API to everybody, set LEASEQUEUE['API']['ACCESS'] = 'open'."
    )
    return ApiError(401, "unauthorized", f"{why} {how}", headers=CHALLENGE)


#: The prefix of every token: it sets ours apart from a host's own, and secret scanners find it.
MARK = "lqk_"
#: Seconds between two notes that a key was used.
USED_EVERY = 60.0


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def make_token() -> tuple[str, str, str]:
    """Return a new token, and what is stored of it: its prefix and the SHA-256 of its secret (256 random bits)."""
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return f"{MARK}{prefix}_{secret}", prefix, _digest(secret)


def create_key(
    name: str,
    scopes: Sequence[str],
    *,
    topics: Sequence[str] = (),
    project: str = "",
    expires_at: datetime | None = None,
    rate_per_second: int | None = None,
    using: str | None = None,
    by: audit.Actor = audit.CODE,
) -> tuple[ApiKey, str]:
    """Make a key and return it with its token, which is not kept and cannot be shown again; the audit says so.

    ``topics`` are beginnings of names, none for all; ``expires_at`` is aware. ``ValidationError`` says what cannot be.
    """
    token, prefix, digest = make_token()
    key = ApiKey(name=name, prefix=prefix, digest=digest, scopes=list(scopes), topics=list(topics), project=project)
    key.expires_at, key.rate_per_second = expires_at, rate_per_second
    key.full_clean()
    using = using or conf.settings.DATABASE
    with transaction.atomic(using=using):
        key.save(using=using)
        note("create_key", key, by)
    return key, token


def rotate_key(key: ApiKey, *, by: audit.Actor = audit.CODE) -> str:
    """Give a key a new secret and return its token; the old one stops working, and the audit says who did it."""
    before = key.prefix
    token, key.prefix, key.digest = make_token()
    with transaction.atomic(using=key._state.db):
        key.save(update_fields=["prefix", "digest"])
        note("rotate_key", key, by, {"prefix": [before, key.prefix]})
    return token


def revoke_key(key: ApiKey, *, by: audit.Actor = audit.CODE) -> bool:
    """Make a key useless for good; the audit says who did it. Return whether it was not revoked before."""
    now = timezone.now()
    with transaction.atomic(using=key._state.db):
        done = ApiKey.objects.using(key._state.db).filter(pk=key.pk, revoked_at=None).update(revoked_at=now)
        if done:
            key.revoked_at = now
            note("revoke_key", key, by, {"revoked_at": [None, now.isoformat()]})
    return bool(done)


def note(action: str, key: ApiKey, by: audit.Actor, changed: dict[str, list[Any]] | None = None) -> None:
    """Write to the audit what was done to a key, in the transaction that does it; of its secret nothing."""
    fields = {name: getattr(key, name) for name in ("name", "prefix", "scopes", "topics", "rate_per_second")}
    ends = None if key.expires_at is None else key.expires_at.isoformat()
    detail = {"key": key.pk, **fields, "expires_at": ends, **({"changed": changed} if changed else {})}
    audit.write(action, by, project=key.project, detail=detail, using=key._state.db)


class KnownKey(NamedTuple):
    """A key as it was read, at ``read_at`` in monotonic seconds."""

    access: Access
    digest: str
    expires_at: datetime | None
    revoked: bool
    read_at: float


_known: process.Memory[str, KnownKey] = process.Memory()


@operation
def find(prefix: str) -> Statements[KnownKey | None]:
    """Read a key by its prefix, trust it for a moment, and note its use once a minute while the server takes writes."""
    rows = yield "apikey_find", {"prefix": prefix, "every": USED_EVERY}
    if not rows:
        _known.pop(prefix, None)
        return None
    number, name, digest, scopes, topics, project, rate, expires_at, revoked, unnoted = rows[0]
    if unnoted:
        try:
            yield "apikey_used", {"id": number, "every": USED_EVERY}
        except Exception as error:
            # Who reads is served during a failover and beside a full disk.
            if not passes(error):
                raise
    access = Access(f"key:{number}:{name}", frozenset(scopes), tuple(topics), project, rate)
    _known[prefix] = found = KnownKey(access, digest, expires_at, revoked, time.monotonic())
    return found


def recall(prefix: str) -> KnownKey | None:
    """Return a key that this process has read a moment ago."""
    known = _known.get(prefix)
    fresh = known is not None and time.monotonic() - known.read_at <= conf.settings.API.KEY_CACHE_SECONDS
    return known if fresh else None


def knows(prefix: str, secret: str) -> bool:
    """Return whether a key was seen with this secret, however long ago."""
    known = _known.get(prefix)
    return known is not None and hmac.compare_digest(_digest(secret), known.digest)


def rights(known: KnownKey | None, secret: str) -> Access:
    """Return the rights of a key, or refuse it; a wrong secret and an unknown key take the same time."""
    fits = hmac.compare_digest(_digest(secret), known.digest if known else _digest(""))
    if known is None or not fits:
        raise unauthorized("This key is unknown.")
    if known.revoked:
        raise unauthorized("This key was revoked.")
    if known.expires_at is not None and known.expires_at <= clock.now().astimezone(UTC):
        raise unauthorized("This key has expired.")
    return known.access
