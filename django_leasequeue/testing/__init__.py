"""For tests of host projects: run enqueued jobs in the test, inspect them, move the queue's clock.

With pytest the installed package provides the fixture ``leasequeue``. With unittest::

    class MyTests(LeaseQueueTestMixin, TestCase):
        def test_mail(self):
            sign_up("a@example.org")
            self.leasequeue.assert_enqueued(send_mail, "a@example.org")
            self.leasequeue.drain()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .harness import Harness as Harness
    from .harness import LeaseQueueTestMixin as LeaseQueueTestMixin
    from .harness import Seen as Seen
    from .running import Ran as Ran

_HOMES = {"Harness": "harness", "LeaseQueueTestMixin": "harness", "Ran": "running", "Seen": "harness"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
