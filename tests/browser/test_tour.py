"""A look at every page: long names, wide and narrow, in German, light and dark, no overflow and no barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.admin.pages import admin_url
from tests.hosts.pages import furnish
from tests.support.sampling import sample

from .longest import LONG, furnish_longest

if TYPE_CHECKING:
    from .person import Person

#: German words are the longest.
WAYS = ((1280, "en"), (390, "en"), (390, "de"))
#: Wider than the window, or scrolled sideways; Django's own lists scroll by design.
_OVERFLOWS = """
const root = document.documentElement;
const wide = root.scrollWidth > root.clientWidth ? [`the page: ${root.scrollWidth} of ${root.clientWidth}`] : [];
return wide.concat([...document.querySelectorAll(".lq-scroll:has(table)")]
    .filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.getAttribute("aria-label") || e.innerText.slice(0, 40)}: ${e.scrollWidth} of ${e.clientWidth}`));
"""


def addresses() -> list[str]:
    """Put something on every page, usual and with the longest names; return the addresses."""
    usual = [address for _, address, _ in furnish()]
    longest = furnish_longest()
    sample()
    return [*usual, *longest]


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(("width", "language"), WAYS)
def test_every_page(person: Person, settings: Any, width: int, language: str) -> None:
    pages = addresses()
    person.sign_in()
    settings.LANGUAGE_CODE = language
    person.widen(width)
    found: list[str] = []

    def look(what: str) -> None:
        found.extend(f"{what}: {each}" for each in person.run(_OVERFLOWS))
        try:
            person.check(f"tour-{what.strip('/').replace('/', '-')[:80]}-{width}-{language}")
        except AssertionError as error:
            found.append(f"{what}: {error}")

    for address in pages:
        person.open(address)
        look(address)
    for action in ("redrive", "discard"):
        person.open(admin_url("deadletters_list", queue=LONG))
        person.tab_to("input[name=seq]")
        person.press(" ")
        person.choose(f"//button[@value='{action}']")
        look(f"confirm {action}")
    person.open("/demo/")
    look("the page of a task of one's own")
    person.choose("//button[contains(text(), 'Count the lines')]")
    look("the progress of a task of one's own")
    assert not found, "\n".join(found)
