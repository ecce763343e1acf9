"""What the reference must name."""

from dataclasses import fields
from pathlib import Path

import pytest
from django.conf import settings

from django_leasequeue.api.options import ApiOptions
from django_leasequeue.conf import Settings
from django_leasequeue.enums import EventKind
from django_leasequeue.presets import CHECKS, PRESETS

REFERENCE = Path(settings.BASE_DIR) / "docs/reference"


def words_missing(page: str, words: list[str]) -> list[str]:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return [word for word in words if f"`{word}`" not in text and f"| {word} |" not in text]


@pytest.mark.parametrize("kind", [Settings, ApiOptions])
def test_every_setting(kind: type) -> None:
    assert words_missing("settings.md", [item.name for item in fields(kind)]) == []


def test_every_queue_option_and_preset() -> None:
    assert words_missing("queue-options.md", [*CHECKS, *PRESETS]) == []


def test_every_kind_of_event() -> None:
    assert words_missing("events.md", [kind.label for kind in EventKind]) == []


def test_every_statement_says_what_it_is_for() -> None:
    folder = Path(settings.BASE_DIR) / "django_leasequeue/sql"
    for path in folder.glob("*.sql"):
        head = path.read_text(encoding="utf-8")
        for word in ("-- Purpose:", "-- Index:"):
            assert word in head, f"{path.name} lacks {word}"
