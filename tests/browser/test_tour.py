"""A look at every page: long names, wide and narrow, in German, light and dark, no overflow and no barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from tests.admin.letters import bury, graves, suspended
from tests.admin.pages import admin_url
from tests.engine.helpers import one
from tests.hosts.pages import furnish
from tests.support.sampling import sample

if TYPE_CHECKING:
    from .person import Person

LONG = "a-topic-of-255-characters-" + "x" * 229
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
    """Furnish every page; add what is long, what sleeps and what waits for an approval."""
    found = [address for _, address, _ in furnish()]
    long = graves(LONG)
    (dead,) = bury(1, LONG, key=LONG, name=f"shop.tasks.{LONG}", tag=LONG)
    engine.run(engine.enqueue(LONG, [NewJob({}, name="shop.tasks.pay")] * 3))
    leased = one(LONG)
    waits, sleeps = suspended(queue="durable", event="expense decided:7"), suspended(queue="durable")
    sample()
    return [
        *found,
        *(admin_url("queue_change", each) for each in (long,)),
        *(admin_url("job_change", each) for each in (dead, leased.seq, waits, sleeps)),
        *(admin_url("job_changelist", state=state) for state in ("ready", "leased", "dead", "any", "sleeping")),
        *(admin_url("job_changelist", queue=long, state=state) for state in ("ready", "dead")),
        admin_url("job_changelist", worker="worker-1"),
        admin_url("task", name="shop.tasks.charge"),
        admin_url("task", name=f"shop.tasks.{LONG}"),
        admin_url("deadletters", queue=LONG),
        admin_url("deadletters_list", queue=LONG),
        admin_url("deadletters", qeue="mail"),
    ]


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(("width", "language"), WAYS)
def test_every_page(person: Person, settings: Any, width: int, language: str) -> None:
    pages = addresses()
    person.sign_in()
    settings.LANGUAGE_CODE = language
    person.widen(width)
    found: list[str] = []
    for address in pages:
        person.open(address)
        found += [f"{address}: {each}" for each in person.run(_OVERFLOWS)]
        try:
            person.check(f"tour-{address.strip('/').replace('/', '-')[:80]}-{width}-{language}")
        except AssertionError as error:
            found.append(str(error))
    assert not found, "\n".join(found)
