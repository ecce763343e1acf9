"""A storage for large payloads: files in a directory, that are away on demand; and what removes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.storage import FileSystemStorage
from django.test.utils import override_settings

from django_leasequeue.engine import clock as engine_clock
from django_leasequeue.engine.pool import connect
from django_leasequeue.reaper.duties import LargeObjects
from django_leasequeue.reaper.duty import DutyRun

#: Text of 5,000 characters: more than ``ABOVE``.
BIG = "0123456789" * 500


class FailingStorage(FileSystemStorage):
    """Files in a directory; while ``is_away`` nothing can be done with them."""

    is_away = False

    def __init__(self, location: str, *, renames: bool = False) -> None:
        super().__init__(location)
        self._suffix = "-2" if renames else ""

    def _save(self, name: str, content: Any) -> str:
        self._look()
        return str(super()._save(name + self._suffix, content))  # type: ignore[misc]  # (not in the stubs)

    def _open(self, name: str, mode: str = "rb") -> Any:
        self._look()
        return super()._open(name, mode)  # type: ignore[misc]  # (not in the stubs)

    def delete(self, name: str) -> None:
        self._look()
        super().delete(name)

    def _look(self) -> None:
        if FailingStorage.is_away:
            raise OSError("the bucket is not reachable")


@contextmanager
def large_settings(place: Path, *, renames: bool = False, **more: Any) -> Iterator[None]:
    """Large payloads go into a directory, under other names if the storage ``renames``."""
    options = {"location": str(place), "renames": renames}
    storages = {**settings.STORAGES, "large": {"BACKEND": f"{__name__}.FailingStorage", "OPTIONS": options}}
    large = {"ABOVE": 4_096, "STORAGE": "large", "MAX_BYTES": 1_000_000}
    given = {**getattr(settings, "LEASEQUEUE", {}), "MAX_PAYLOAD_BYTES": 65_536, "LARGE": large, **more}
    with override_settings(STORAGES=storages, LEASEQUEUE=given):
        yield


@contextmanager
def away() -> Iterator[None]:
    """The storage does nothing."""
    FailingStorage.is_away = True
    try:
        yield
    finally:
        FailingStorage.is_away = False


def files(place: Path) -> list[Path]:
    """Every file below a directory."""
    return sorted(path for path in place.rglob("*") if path.is_file())


def reap(**later: float) -> None:
    """Give the reaper's duty the turns of a walk over all objects, at a later time."""
    duty = LargeObjects()
    clock = engine_clock.Clock(engine_clock.now())
    clock.advance(**later)
    with engine_clock.hold(clock), connect("default") as connection:
        for _ in range(3):
            duty(DutyRun(connection, "default", budget=60))
