"""A look at every page: with names of 255 characters, wide and narrow, light and dark, no overflow and no barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.admin.pages import admin_url
from tests.hosts.pages import furnish
from tests.support.sampling import sample

from .longest import LONG, furnish_longest

if TYPE_CHECKING:
    from .person import Person

WIDTHS = (1280, 390)
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
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page(person: Person, width: int, half: int) -> None:
    pages = addresses()[half::2]
    person.sign_in()
    person.widen(width)
    found: list[str] = []
    for address in pages:
        person.open(address)
        found += [f"{address}: {each}" for each in person.run(_OVERFLOWS)]
        try:
            person.check(f"tour-{address.strip('/').replace('/', '-')[:80]}-{width}")
        except AssertionError as error:
            found.append(f"{address}: {error}")
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_confirmations_and_the_page_of_a_task_of_one_s_own(person: Person, width: int) -> None:
    furnish_longest()
    person.sign_in()
    person.widen(width)

    def look(what: str) -> None:
        assert person.run(_OVERFLOWS) == [], what
        person.check(f"tour-{what}-{width}")

    for action in ("redrive", "discard"):
        person.open(admin_url("deadletters_list", queue=LONG))
        person.tab_to("input[name=seq]")
        person.press(" ")
        person.choose(f"//button[@value='{action}']")
        look(f"confirm-{action}")
    person.open("/demo/")
    look("demo")
    person.choose("//button[contains(text(), 'Count the lines')]")
    look("progress")
