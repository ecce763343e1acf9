"""What the reference must name, and what the pages about moving say."""

import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import BaseCommand, CommandParser, get_commands, load_command_class

from django_leasequeue.conf import loader
from django_leasequeue.conf.queue_options import OPTIONS
from django_leasequeue.engine.queues.presets import PRESETS
from django_leasequeue.enums import EventKind
from django_leasequeue.management.commands.runworker import Command
from django_leasequeue.tasks import Backoff
from tests.support.documents import DOCS
from tests.support.sections import sections

REFERENCE = Path(settings.BASE_DIR) / "docs/reference"


def words_missing(page: str, words: list[str]) -> list[str]:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return [word for word in words if f"`{word}`" not in text and f"| {word} |" not in text]


@pytest.mark.parametrize(("name", "kind"), sections().items())
def test_every_setting_with_what_it_may_be_and_its_default(name: str, kind: type[Any]) -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    table = text if name == "LEASEQUEUE" else re.split(rf"^##+ {name}$", text, maxsplit=1, flags=re.MULTILINE)[1]
    table = re.split(r"^##", table, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"^\| `(\w+)` \| (.+?) \| `(.+?)` \|", table, re.MULTILINE)
    rows = {key: (values, default) for key, values, default in found}
    assert list(rows) == list(loader.options(kind))
    for key, (item, hint) in loader.options(kind).items():
        values, default = rows[key]
        assert values == loader.words(hint), key
        value = eval(re.sub(r"(?<=\d),(?=\d)", "_", default))
        assert loader.parse(kind, {key: value}, name, []) == kind(), key
        assert is_dataclass(hint) or type(value) in (type(loader.default(item)), list), key


def test_every_queue_option_and_preset() -> None:
    assert words_missing("queue-options.md", [*OPTIONS, *PRESETS]) == []


def test_every_kind_of_event() -> None:
    assert words_missing("events.md", [kind.label for kind in EventKind]) == []


def options_of(parser: CommandParser) -> Iterator[str]:
    """The options of a command and of its parts, without those that every command has."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for part in action.choices.values():
                yield from options_of(part)
        yield from (word for word in action.option_strings if word.startswith("--"))


def test_every_command_and_its_options() -> None:
    common = set(options_of(BaseCommand().create_parser("manage.py", "none"))) | {"--skip-checks", "--help"}
    pages = {path.name: path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md")}
    names = [name for name, app in get_commands().items() if app == "django_leasequeue"]
    assert len(names) > 8
    for name in names:
        assert f"`{name}`" in pages["commands.md"], name
        found = "".join(text for text in pages.values() if name in text)
        command = load_command_class("django_leasequeue", name)
        for option in set(options_of(command.create_parser("manage.py", name))) - common:
            assert option in found, f"{name} {option}"


PAGES = sorted(path.name for path in (DOCS / "how-to").glob("move-from-*.md"))


def ours(page: str) -> list[str]:
    """The right column of the page's table."""
    text = (DOCS / "how-to" / page).read_text(encoding="utf-8")
    return [line.strip("| ").split(" | ")[-1] for line in text.splitlines() if re.match(r"\| (?!---)", line)][1:]


@pytest.mark.parametrize("page", PAGES)
def test_a_table_says_what_becomes_what(page: str) -> None:
    assert len(ours(page)) >= 8


@pytest.mark.parametrize("page", PAGES)
def test_the_worker_has_the_options_that_are_named(page: str) -> None:
    known = {
        word for action in Command().create_parser("manage.py", "runworker")._actions for word in action.option_strings
    }
    assert {option for cell in ours(page) for option in re.findall(r"`[^`]*?(--[a-z-]+)", cell)} <= known


def test_the_waits_of_procrastinate_and_ours() -> None:
    """Its ``exponential_wait=2`` waits 2, 4, 8 seconds; its ``max_attempts`` counts the tries after the first."""
    assert [Backoff("exponential", base=1).delay(attempt) for attempt in (1, 2, 3)] == [2, 4, 8]
    assert [Backoff("linear", base=3).delay(attempt) for attempt in (1, 2, 3)] == [3, 6, 9]
    page = (DOCS / "how-to/move-from-procrastinate.md").read_text(encoding="utf-8")
    assert "RetryStrategy(max_attempts=5, exponential_wait=2)" in page
    assert 'max_attempts=6, backoff=Backoff("exponential", base=1)' in page
