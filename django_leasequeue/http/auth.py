"""Authentication: our API keys, then the host's own DRF classes; tokens stay out of access logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth.models import AnonymousUser
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from .. import conf, engine
from .access import ADMIN, ALL_SCOPES, DELETE, EMIT, OPEN, READ, WRITE, Access
from .errors import ApiError
from .keys import MARK, find, ring
from .running import RequestRunner
from .throttle import looking_up

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="leasequeue"'}
_HOW = (
    "Send a key as 'Authorization: Bearer <key>'. Keys are made with 'manage.py leasequeue_apikey create'. To open the"
    " API to everybody, set LEASEQUEUE['API']['ACCESS'] = 'open'."
)


def unauthorized(why: str) -> ApiError:
    """Return the error for a request whose key is missing or not good."""
    return ApiError(401, "unauthorized", f"{why} {_HOW}", headers=_CHALLENGE)


def bearer(request: Request, *, in_query: bool = False) -> str | None:
    """Return the token that a request carries: in its header, or (event streams only) in its query.

    ``X-Auth-Token``, the header of OpenStack's clients, counts with a key of ours only: other services use it as well.
    """
    scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return str(token.strip())
    token = request.META.get("HTTP_X_AUTH_TOKEN", "").strip()
    if split_token(token) is not None:
        return str(token)
    if in_query and request.method == "GET":
        return request.GET.get("token") or None
    return None


class ApiKeyAuthentication(BaseAuthentication):
    """Recognises our keys; ``request.auth`` is then the request's ``Access``. For a host's own views as well."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Access] | None:
        """Return the anonymous user and the key's rights; ``None`` when the request carries no key of ours.

        Raises:
            ApiError: the key is unknown, revoked or expired; or too many unknown ones came from there.
        """
        parts = split_token(bearer(request) or "")
        if parts is None:
            return None
        prefix, secret = parts
        known = ring.recall(prefix)
        if known is None:
            with looking_up(request, prefix, secret):
                known = ring.learn(prefix, engine.run(find(prefix)))
        return AnonymousUser(), _granted(ring.check(known, secret))

    def authenticate_header(self, request: Request) -> str:
        return _CHALLENGE["WWW-Authenticate"]


def split_token(token: str) -> tuple[str, str] | None:
    """Return the prefix and the secret of a token of ours; ``None`` if it is not one."""
    if not token.startswith(MARK):
        return None
    prefix, found, secret = token.removeprefix(MARK).partition("_")
    return (prefix, secret) if found and 0 < len(prefix) <= 16 and len(token) <= 200 else None


def _granted(found: Access | str) -> Access:
    if isinstance(found, str):
        raise unauthorized(found)
    return found


@cache
def _imported(path: str) -> Any:
    return import_string(path)


async def authenticate(request: Request, runner: RequestRunner, *, in_query: bool = False) -> Access:
    """Return what a request may do, and set its ``user`` and ``auth``; 401 if it is not authenticated.

    Our keys come first, then the host's authentication classes, then openness (``ACCESS``).
    """
    token = bearer(request, in_query=in_query)
    parts = split_token(token) if token is not None else None
    if parts is not None:
        prefix, secret = parts
        known = ring.recall(prefix)
        if known is None:
            with looking_up(request, prefix, secret):
                known = ring.learn(prefix, await runner_of_keys(runner).run(find(prefix)))
        access = _granted(ring.check(known, secret))
        request.user, request.auth = AnonymousUser(), access
        return access
    for path in conf.settings.API.AUTHENTICATION_CLASSES:
        found = await sync_to_async(_imported(path)().authenticate)(request)
        if found is not None:
            request.user, request.auth = found
            own = conf.settings.API.GRANTS
            grants: Callable[[Request], Access | None] = default_grants if own is None else _imported(own)
            return await sync_to_async(grants)(request) or Access("host", frozenset())
    if token is not None:
        raise unauthorized("This key is unknown.")
    mode = conf.settings.API.ACCESS
    if mode == "open" or (mode == "auto" and django_settings.DEBUG):
        request.user, request.auth = AnonymousUser(), OPEN
        return OPEN
    raise unauthorized("This API needs a key.")


def runner_of_keys(runner: RequestRunner) -> RequestRunner:
    """Return a runner for the database that holds the keys: the default one, wherever the queues are."""
    home = conf.settings.DATABASE
    return runner if runner.using == home else RequestRunner(home, threaded=runner.threaded)


#: The Django permission that stands for a scope, for users whom the host has logged in. None stands for ``projects``: a
#: superuser has every permission, and the right to act for all projects is given explicitly.
PERMISSIONS = {
    READ: "leasequeue.view_queue",
    WRITE: "leasequeue.add_job",
    DELETE: "leasequeue.delete_queue",
    ADMIN: "leasequeue.change_queue",
    EMIT: "leasequeue.emit_event",
}


def default_grants(request: Request) -> Access:
    """Return the rights of a request that the host authenticated.

    OAuth scopes named ``leasequeue:read`` and so on, where the host's token has scopes; the user's Django permissions
    otherwise (``PERMISSIONS``).
    """
    who = f"user:{getattr(request.user, 'pk', None)}"
    given = getattr(request.auth, "scopes", None) or getattr(request.auth, "scope", None)
    if given is not None:
        words = given.split() if isinstance(given, str) else list(given)
        return Access(who, frozenset(scope for scope in ALL_SCOPES if f"leasequeue:{scope}" in words))
    return Access(who, frozenset(scope for scope, name in PERMISSIONS.items() if request.user.has_perm(name)))


def require(access: Access, scopes: frozenset[str], topic: str | None = None) -> None:
    """Answer 403, naming what is missing, unless a request may do what it asks for."""
    if not scopes <= access.scopes:
        missing = " and ".join(access.missing(scopes))
        raise ApiError(403, "forbidden", f"This needs the scope {missing}, which the key does not have.")
    if topic is not None and access.prefixes and not access.sees(topic):
        raise ApiError(403, "forbidden", f"This key may not use the topic {topic!r}: ask for a key with its prefix.")


class HasScopes(BasePermission):
    """For a host's own views that use our keys: the view says ``required_scopes = {"POST": frozenset({"write"})}``."""

    def has_permission(self, request: Request, view: Any) -> bool:
        access = request.auth
        needed = getattr(view, "required_scopes", {}).get(request.method, frozenset())
        return isinstance(access, Access) and not access.missing(needed)


# Keeping tokens out of access logs: ``?token=`` is for browsers' event streams, and servers log the whole address.

#: Loggers of servers that write a line for each request.
ACCESS_LOGGERS = (
    "uvicorn.access",
    "hypercorn.access",
    "gunicorn.access",
    "daphne.access",
    "django.server",
    "django.channels.server",
)

# A query stands behind an address, or alone (gunicorn's %(q)s).
_TOKEN = re.compile(r"((?:^|[?&])token=)[^&\s\"']+")


def redact(text: str) -> str:
    """Return an address or a log line without the token in its query."""
    return _TOKEN.sub(r"\1[redacted]", text)


def _plain(value: Any) -> Any:
    return redact(value) if isinstance(value, str) else value


class _Redacted(Mapping[str, Any]):
    """A server's own mapping of log atoms, its tokens masked.

    Servers answer for names that they do not list (gunicorn: any header, and ``-`` for what is not there): each name is
    asked of their mapping.
    """

    def __init__(self, atoms: Mapping[str, Any]) -> None:
        self._atoms = atoms

    def __getitem__(self, name: str) -> Any:
        return _plain(self._atoms[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._atoms)

    def __len__(self) -> int:
        return len(self._atoms)


class RedactTokens(logging.Filter):
    """Takes tokens out of the arguments and the message of a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            record.msg = redact(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(_plain(item) for item in record.args)
        elif isinstance(record.args, Mapping) and not isinstance(record.args, _Redacted):
            record.args = _Redacted(record.args)
        return True


_FILTER = RedactTokens()


def redact_access_logs() -> None:
    """Redact the access logs of the common servers, whichever of them runs this process. May be called again."""
    for name in ACCESS_LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
