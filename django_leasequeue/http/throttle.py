"""Limits of requests: those of one key in a second, and the unknown keys of one client address in a minute."""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic

from asgiref.sync import sync_to_async
from django.core.cache import BaseCache, caches
from rest_framework.request import Request

from .. import conf
from ..conf import process
from .access import Access
from .errors import ApiError
from .keys import ring
from .streaming import advise_pace

#: Seconds of one window: short, so that a client that waits for ``Retry-After`` never waits long.
WINDOW = 1.0


def _count(cache: BaseCache, key: str) -> int:
    if cache.add(key, 1, timeout=10):
        return 1
    try:
        return cache.incr(key)
    except ValueError:  # it expired between the two calls
        cache.set(key, 1, timeout=10)
        return 1


def _key(who: str, window: int) -> str:
    """Return the name under which a caller's requests are counted: memcached takes neither spaces nor long names."""
    digest = hashlib.sha256(who.encode(errors="surrogatepass")).hexdigest()
    return f"leasequeue:rate:{digest}:{window}"


async def throttle(access: Access, limit: int) -> None:
    """Count one request of a caller, of so many a second; answer 429 beyond.

    Server processes count together when they share the cache (``THROTTLE_CACHE``).
    """
    now = time.time()
    window = int(now / WINDOW)
    cache = caches[conf.settings.API.THROTTLE_CACHE]
    if await sync_to_async(_count)(cache, _key(access.who, window)) > limit:
        wait = (window + 1) * WINDOW - now
        message = f"This key may make {limit} requests a second. Try again in {wait:.1f} s, or use larger batches."
        advise_pace(access.who, message, wait)
        raise ApiError(429, "throttled", message, headers={"Retry-After": str(max(1, round(wait)))})


#: Addresses that a process remembers; the one that was not heard of for longest goes first.
_REMEMBERED = 10_000
#: Bits of an IPv6 address that stand for one client: an access line has at least a /64 network.
_IPV6_BITS = 64


class Guesses:
    """What is left to each address: ``UNKNOWN_KEYS_PER_MINUTE`` at once, refilled over a minute."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()
        process.when_forgetting(self._left.clear)

    def spend(self, address: str) -> float:
        """Take one; return 0, or the seconds until there is one again."""
        limit = conf.settings.API.UNKNOWN_KEYS_PER_MINUTE
        if limit is None:
            return 0.0
        with self._lock:
            left = self._now(address, limit)
            if left < 1:
                return (1 - left) * 60 / limit
            self._note(address, left - 1)
        return 0.0

    def give_back(self, address: str) -> None:
        """Undo a ``spend``: the key was good, or could not be looked up."""
        limit = conf.settings.API.UNKNOWN_KEYS_PER_MINUTE
        if limit is not None:
            with self._lock:
                self._note(address, min(limit, self._now(address, limit) + 1))

    def _now(self, address: str, limit: int) -> float:
        left, at = self._left.get(address, (float(limit), 0.0))
        return min(float(limit), left + (monotonic() - at) * limit / 60)

    def _note(self, address: str, left: float) -> None:
        self._left[address] = (left, monotonic())
        self._left.move_to_end(address)
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)


guesses = Guesses()


def client_address(request: Request) -> str:
    """Return the address of a request's client, as far as ``PROXIES`` says whom to believe; of IPv6 its network."""
    text = str(request.META.get("REMOTE_ADDR") or "")
    count = conf.settings.API.PROXIES
    hops = [hop.strip() for hop in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if hop.strip()]
    if count and len(hops) >= count:
        text = hops[-count]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # a Unix socket, or not what a proxy sends
        return text[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), _IPV6_BITS), strict=False))


@contextmanager
def looking_up(request: Request, prefix: str, secret: str) -> Iterator[None]:
    """Count the look-up of a key as a guess of the client, unless this process knows the key or it proves to be one.

    What is too much is answered 429 before anything is looked up.
    """
    if ring.knows(prefix, secret):
        yield
        return
    address = client_address(request)
    wait = guesses.spend(address)
    if wait:
        raise ApiError(
            429,
            "throttled",
            "Too many unknown keys came from this address. Try again later, with a key that is one.",
            headers={"Retry-After": str(max(1, round(wait)))},
        )
    try:
        yield
    except BaseException:
        guesses.give_back(address)
        raise
    if ring.knows(prefix, secret):
        guesses.give_back(address)
