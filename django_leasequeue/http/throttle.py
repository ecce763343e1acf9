"""Requests a second of one key."""

from __future__ import annotations

import hashlib
import time

from asgiref.sync import sync_to_async
from django.core.cache import BaseCache, caches

from .. import conf
from .access import Access
from .errors import ApiError

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


def limit_of(access: Access) -> int | None:
    """Return how many requests a second a caller may make; ``None`` for any number."""
    return access.rate if access.rate is not None else conf.settings.API.RATE_PER_SECOND


async def throttle(access: Access) -> None:
    """Count one request.

    Server processes count together when they share the cache (``THROTTLE_CACHE``).

    Raises:
        ApiError: 429; the window's rest is in ``Retry-After``.
    """
    limit = limit_of(access)
    if limit is None:
        return
    now = time.time()
    window = int(now / WINDOW)
    cache = caches[conf.settings.API.THROTTLE_CACHE]
    if await sync_to_async(_count)(cache, _key(access.who, window)) > limit:
        wait = (window + 1) * WINDOW - now
        raise ApiError(
            429,
            "throttled",
            f"This key may make {limit} requests a second. Try again in {wait:.1f} s, or use larger batches.",
            headers={"Retry-After": str(max(1, round(wait)))},
        )
