"""Authentication: our API keys, then the host's own DRF classes; limits of a key's requests and of unknown keys."""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth.models import AnonymousUser
from django.core.cache import BaseCache, caches
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from .. import conf, engine
from ..conf import process
from .access import ALL_SCOPES, CHALLENGE, MARK, OPEN, PERMISSIONS, Access, find, knows, recall, rights, unauthorized
from .errors import ApiError
from .streaming import advise_pace

if TYPE_CHECKING:
    from .views import RequestRunner


def bearer(request: Request, *, in_query: bool = False) -> str | None:
    """Return the token that a request carries: in its header, or (event streams only) in its query."""
    scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return str(token.strip())
    # The header of OpenStack's clients counts with a key of ours only: other services use it as well.
    token = request.META.get("HTTP_X_AUTH_TOKEN", "").strip()
    if split_token(token) is not None:
        return str(token)
    return request.GET.get("token") or None if in_query and request.method == "GET" else None


class ApiKeyAuthentication(BaseAuthentication):
    """Recognises our keys; ``request.auth`` is then the request's ``Access``. For a host's own views as well."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Access] | None:
        """Return the anonymous user and the key's rights; ``None`` when the request carries no key of ours.

        ``ApiError``: the key is unknown, revoked or expired; or too many unknown ones came from there.
        """
        parts = split_token(bearer(request) or "")
        if parts is None:
            return None
        prefix, secret = parts
        known = recall(prefix)
        if known is None:
            with looking_up(request, prefix, secret):
                known = engine.run(find(prefix))
        return AnonymousUser(), rights(known, secret)

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE["WWW-Authenticate"]


def split_token(token: str) -> tuple[str, str] | None:
    """Return the prefix and the secret of a token of ours; ``None`` if it is not one."""
    if not token.startswith(MARK):
        return None
    prefix, found, secret = token.removeprefix(MARK).partition("_")
    return (prefix, secret) if found and 0 < len(prefix) <= 16 and len(token) <= 200 else None


async def authenticate(request: Request, runner: RequestRunner, *, in_query: bool = False) -> Access:
    """Return what a request may do by our key, the host's classes or openness (``ACCESS``); set ``user``, ``auth``."""
    token = bearer(request, in_query=in_query)
    parts = split_token(token or "")
    if parts is not None:
        prefix, secret = parts
        known = recall(prefix)
        if known is None:
            with looking_up(request, prefix, secret):
                # The keys are in the default database, wherever the queues are.
                known = await runner.on(conf.settings.DATABASE).run(find(prefix))
        access = rights(known, secret)
        request.user, request.auth = AnonymousUser(), access
        return access
    for path in conf.settings.API.AUTHENTICATION_CLASSES:
        found = await sync_to_async(import_string(path)().authenticate)(request)
        if found is not None:
            request.user, request.auth = found
            own = conf.settings.API.GRANTS
            grants: Callable[[Request], Access | None] = default_grants if own is None else import_string(own)
            return await sync_to_async(grants)(request) or Access("host", frozenset())
    if token is not None:
        raise unauthorized("This key is unknown.")
    mode = conf.settings.API.ACCESS
    if mode == "open" or (mode == "auto" and django_settings.DEBUG):
        request.user, request.auth = AnonymousUser(), OPEN
        return OPEN
    raise unauthorized("This API needs a key.")


def default_grants(request: Request) -> Access:
    """Return the rights of a request that the host authenticated.

    They are OAuth scopes such as ``leasequeue:read`` where the host's token has scopes, else Django's ``PERMISSIONS``.
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


def require_all_topics(access: Access, what: str) -> None:
    """Answer 403 to a key with prefixes: ``what`` it asks for is not about single topics."""
    if access.prefixes:
        raise ApiError(403, "forbidden", f"A key with prefixes may not {what}: ask for one without.")


class HasScopes(BasePermission):
    """For a host's own views that use our keys: the view says ``required_scopes = {"POST": frozenset({"write"})}``."""

    def has_permission(self, request: Request, view: Any) -> bool:
        access = request.auth
        needed = getattr(view, "required_scopes", {}).get(request.method, frozenset())
        return isinstance(access, Access) and not access.missing(needed)


#: Seconds of one window: short, so that a client that waits for ``Retry-After`` never waits long.
WINDOW = 1.0


async def throttle(access: Access, limit: int) -> None:
    """Count one request of a caller, of so many a second; answer 429 beyond. A shared cache counts for all servers."""
    now = time.time()
    window = int(now / WINDOW)
    digest = hashlib.sha256(access.who.encode(errors="surrogatepass")).hexdigest()  # a name that memcached takes
    key = f"leasequeue:rate:{digest}:{window}"
    if await sync_to_async(_count)(caches[conf.settings.API.THROTTLE_CACHE], key) > limit:
        wait = (window + 1) * WINDOW - now
        message = f"This key may make {limit} requests a second. Try again in {wait:.1f} s, or use larger batches."
        advise_pace(access.who, message, wait)
        raise _throttled(message, wait)


def _count(cache: BaseCache, key: str) -> int:
    if cache.add(key, 1, timeout=10):
        return 1
    try:
        return cache.incr(key)
    except ValueError:  # it expired between the two calls
        cache.set(key, 1, timeout=10)
        return 1


def _throttled(message: str, wait: float) -> ApiError:
    return ApiError(429, "throttled", message, headers={"Retry-After": str(max(1, round(wait)))})


#: Addresses that a process remembers; the one that was not heard of for longest goes first.
_REMEMBERED = 10_000
#: Bits of an IPv6 address that stand for one client: an access line has at least a /64 network.
_IPV6_BITS = 64


_left: OrderedDict[str, tuple[float, float]] = OrderedDict()
_lock = Lock()
process.when_forgetting(_left.clear)


def spend_guess(address: str, count: int = 1) -> float:
    """Take one of an address's guesses of a minute (-1: give it back); return 0, or the seconds until there is one."""
    limit, now = conf.settings.API.UNKNOWN_KEYS_PER_MINUTE, monotonic()
    if limit is None:
        return 0.0
    with _lock:
        left, at = _left.get(address, (float(limit), 0.0))
        left = min(float(limit), left + (now - at) * limit / 60)
        if left < count:
            return (1 - left) * 60 / limit
        _left[address] = (min(float(limit), left - count), now)
        _left.move_to_end(address)
        if len(_left) > _REMEMBERED:
            _left.popitem(last=False)
    return 0.0


def client_address(request: Request) -> str:
    """Return the address of a request's client, as far as ``PROXIES`` says whom to believe; of IPv6 its network."""
    count = conf.settings.API.PROXIES
    hops = [hop.strip() for hop in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if hop.strip()]
    text = hops[-count] if count and len(hops) >= count else str(request.META.get("REMOTE_ADDR") or "")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # a Unix socket, or not what a proxy sends
        return text[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), _IPV6_BITS), strict=False))


@contextmanager
def looking_up(request: Request, prefix: str, secret: str) -> Iterator[None]:
    """Count the look-up of a key as a guess of the client, unless it is or proves to be a key; 429 if too many."""
    if knows(prefix, secret):
        yield
        return
    address = client_address(request)
    wait = spend_guess(address)
    if wait:
        raise _throttled("Too many unknown keys came from this address. Try again later, with a key that is one.", wait)
    good = True  # or not looked up
    try:
        yield
        good = knows(prefix, secret)
    finally:
        if good:
            spend_guess(address, -1)
