"""The pages about moving: a table of what becomes what, and what they say of ours is so."""

import re

import pytest

from django_leasequeue.management.commands.runworker import Command
from django_leasequeue.tasks import Backoff
from tests.support.documents import DOCS

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
