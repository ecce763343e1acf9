"""Counting requests in a cache that is as particular about its keys as memcached."""

from typing import Any

import pytest
from django.core.cache import InvalidCacheKey
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.memcached import BaseMemcachedCache

from django_leasequeue.http.access import Access, create_key
from django_leasequeue.http.auth import throttle
from django_leasequeue.http.errors import ApiError
from tests.http.client import Api


class AsMemcached(LocMemCache):
    """A cache in memory that refuses the keys that Django's memcached backends refuse."""

    validate_key = BaseMemcachedCache.validate_key


@pytest.fixture(autouse=True)
def _memcached(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": f"{__name__}.AsMemcached", "LOCATION": "throttle"}}


def test_the_stand_in_is_particular() -> None:
    from django.core.cache import cache

    for key in ("billing service", "tab\there", "k" * 251):
        with pytest.raises(InvalidCacheKey):
            cache.add(key, 1)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["billing service", "tab\there\x7f", "Zahlung für Müller", "n" * 128, "a:b"])
def test_requests_are_counted_whatever_the_key_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = create_key(name, ["read"], rate_per_second=1)
    monkeypatch.setattr("django_leasequeue.http.auth.time.time", lambda: 1_000.0)
    assert [Api(token).get("topics").status for _ in range(3)] == [200, 429, 429]


@pytest.mark.parametrize("who", ["n" * 400, "line\nbreak", "half a letter \ud800"])
async def test_requests_of_callers_that_the_host_names_are_counted(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.http.auth.time.time", lambda: 1_000.0)
    caller = Access(who, frozenset())
    await throttle(caller, 1)
    with pytest.raises(ApiError, match="1 requests a second"):
        await throttle(caller, 1)
