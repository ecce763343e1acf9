"""State of the process: switches, caches, objects that threads and event loops share.

Every fork hook, map of event loops and memory of a database that the package has is one of the classes here.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
V = TypeVar("V")


class Inline(Protocol):
    """Runs jobs in the calling thread instead of a worker."""

    #: Whether it does so outside of transactions as well.
    always: bool

    def __call__(self) -> None: ...


@dataclass(slots=True)
class Switches:
    """Switches that ``django_leasequeue.testing`` sets for tests; nothing else does."""

    #: Whether ``ASYNC = "auto"`` means Django's connection in a thread, which sees a test's open transaction.
    django_connection: bool = False
    #: Runs jobs for a caller that waits inside a transaction that no worker sees.
    inline: Inline | None = None
    #: Whether an ``EmbeddedWorker`` starts: beside a test's transactions it would take jobs away from it.
    embedded: bool = True


switches = Switches()


class _Thread(threading.local):
    #: In a thread of ours: the errors that are raised into it from outside, and pass. ``None``: it is the host's.
    orders: tuple[type[BaseException], ...] | None = None


_thread = _Thread()


def own_thread(*orders: type[BaseException]) -> None:
    """Note that the current thread is ours: it outlives whatever the host's code raises in it, but ``orders``."""
    _thread.orders = orders


def is_own_thread() -> bool:
    """Return whether the current thread is ours."""
    return _thread.orders is not None


def outlives(error: BaseException, elsewhere: tuple[type[BaseException], ...] = (Exception,)) -> bool:
    """Return whether what the host's code has raised is its failure only, and nothing that ends this thread.

    In a thread of the host that is an error ``elsewhere``: a signal or a server may have raised ``SystemExit`` there.
    """
    return isinstance(error, elsewhere) if _thread.orders is None else not isinstance(error, _thread.orders)


_forgetting: list[Callable[[], object]] = []


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while lasting objects are made, such as modules."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def in_forked_child(function: Callable[[], object]) -> None:
    """Call a function first in each process that this one forks."""
    os.register_at_fork(after_in_child=function)


def around_fork(before: Callable[[], object], after: Callable[[], object]) -> None:
    """Call functions before and after each fork, in this process."""
    os.register_at_fork(before=before, after_in_parent=after)


def let_go(descriptor: int) -> None:
    """Give up a descriptor that the parent still uses: redirect its number to the null device.

    A close would free the number for another file, and libpq would end the parent's session.
    """
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor, inheritable=False)
            os.close(null)


def when_forgetting(function: Callable[[], object]) -> None:
    """Let ``forget`` call a function that empties a cache."""
    _forgetting.append(function)


def forget() -> None:
    """Empty all caches about databases, between tests."""
    for function in _forgetting:
        function()


class Memory(dict[K, V]):
    """A cache of the process: a dict that is emptied when it is full, and by ``forget``."""

    def __init__(self, size: int = 10_000) -> None:
        super().__init__()
        self._size = size
        when_forgetting(self.clear)

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._size and key not in self:
            self.clear()
        super().__setitem__(key, value)


class Shared(Generic[K, V]):
    """Objects that all threads of a process share, one for each key, made on first use.

    A forked child, which has no threads or connections of its parent, begins without objects.
    """

    def __init__(self) -> None:
        self._begin()
        in_forked_child(self._begin)

    def _begin(self) -> None:
        # Another thread may have held the lock when the process was forked.
        self._lock = threading.Lock()
        self._made: dict[K, V] = {}

    def get(self, key: K, make: Callable[[K], V], *, usable: Callable[[V], bool] | None = None) -> V:
        """Return the object of a key; ``make`` it if there is none that is ``usable``."""
        with self._lock:
            if key not in self._made or not (usable is None or usable(self._made[key])):
                self._made[key] = make(key)
            return self._made[key]

    def clear(self) -> list[V]:
        with self._lock:
            made, self._made = self._made, {}
        return list(made.values())


class PerLoop(Generic[V]):
    """An object that the coroutines of one event loop share, made on first use.

    It is dropped with its loop, or, where it refers to its loop, when one is made for another loop after that was
    closed; ``drop`` is called with it then.
    """

    def __init__(self, make: Callable[[], V], drop: Callable[[V], object] | None = None) -> None:
        self._make, self._drop = make, drop
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, V] = WeakKeyDictionary()

    def get(self) -> V:
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._drop_closed()
            self._made[loop] = self._make()
        return self._made[loop]

    def pop(self) -> V | None:
        return self._made.pop(asyncio.get_running_loop(), None)

    def items(self) -> list[tuple[asyncio.AbstractEventLoop, V]]:
        return [(loop, made) for loop in self._loops() if (made := self._made.get(loop)) is not None]

    def _loops(self) -> list[asyncio.AbstractEventLoop]:
        # At once, as other threads add theirs.
        return [loop for reference in self._made.keyrefs() if (loop := reference()) is not None]

    def _drop_closed(self) -> None:
        for loop in self._loops():
            if loop.is_closed() and (made := self._made.pop(loop, None)) is not None and self._drop is not None:
                self._drop(made)
