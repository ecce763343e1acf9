"""No statement reads more pages than its header says, whatever the planner knows of the tables.

What the planner knows: figures of full tables, of tables that were emptied, of new ones, none at all; and plans that
were made when everything was empty and are kept. On our own connections and on a host's, with 200,000 jobs and as many
results. Two states of the figures lie between others, and are for a release.
"""

import re
from collections.abc import Iterator

import pytest
from django.db import connection as django_connection
from pytest_django.plugin import DjangoDbBlocker

from django_leasequeue.sql import paths, statement

from . import cases_core, cases_queues, cases_upkeep
from .filling import empty_database
from .regimes import Measure, measure_all

pytestmark = [pytest.mark.plans, pytest.mark.slow, pytest.mark.django_db]

#: Every statement that a bound can hold, with standard parameters.
CASES = [*cases_core.CASES, *cases_queues.CASES, *cases_upkeep.CASES]
FORMULA = re.compile(r"(\d+)(?: \+ ([\d.]+) a row)?(, and the live claims)?\Z")
SAID = {name: (re.findall(r"(?m)^-- Pages: (.*)", path.read_text()) or [""])[0] for name, path in paths().items()}
#: A statement that reads or writes a table of ours.
OURS = re.compile(r"\b(FROM|JOIN|INTO|UPDATE|TABLE) leasequeue_")
#: Statements of other makings: templates, run now and then by the reaper.
APART = "ddl/"
#: PostgreSQL before 17 goes down an index anew for each key of an array: pages on top, for each row and each array.
DESCENT = 3
#: Arrays whose values are looked for in an index, as far as the text of a statement tells; the function has two.
ARRAYS = re.compile(r"(?<=[a-z])(?<!ctid) = ANY \(|leasequeue_keyed\(()")
#: Pages of the live claims of the queue that has most of them.
LIVE_CLAIMS = 1_000


#: How many times its pages a statement may touch whose values are literals: it is planned by what the statistics say.
LITERALS = 3


def bound(measure: Measure) -> float:
    """The pages that a run may touch: of the rows that it returned or was asked for."""
    found = FORMULA.match(SAID[measure.case.name])
    rows = max(measure.rows, measure.case.asked)
    sought = sum(1 if array[1] is None else 2 for array in ARRAYS.finditer(statement(measure.case.name)))
    more = 0 if django_connection.pg_version >= 170_000 else DESCENT * sought * rows
    return int(found[1]) + float(found[2] or 0) * rows + more + (LIVE_CLAIMS if found[3] else 0)


@pytest.fixture(
    scope="module",
    params=[
        ("kept", "full", "hollow", "none"),
        # They differ from "hollow" and "none" only in the sizes that the planner is told.
        pytest.param(("emptied", "empty"), marks=pytest.mark.release),
    ],
    ids=" ".join,
)
def measures(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, list[Measure]]]:
    """What was measured, by statement: of those statements that this run of the tests asks for."""
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_pages
    }
    found: dict[str, list[Measure]] = {}
    with empty_database(django_db_blocker):
        cases = [case for case in CASES if case.name in wanted]
        statistics = [name for name in request.param if name != "kept"]
        for measure in measure_all(cases, statistics, kept="kept" in request.param):
            found.setdefault(measure.case.name, []).append(measure)
        yield found


@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_pages(measures: dict[str, list[Measure]], name: str) -> None:
    failed = [f"{each.regime}: {each.error}" for each in measures[name] if each.error]
    assert failed == []
    over = [
        f"{each.regime}: {each.pages} of {bound(each):.0f} pages, rows {each.rows} of {each.case.asked}: {each.where}"
        for each in measures[name]
        if each.pages > bound(each) * (LITERALS if each.regime.startswith("host, bound") else 1)
    ]
    assert over == [], f"{name} -- Pages: {SAID[name]}"


def test_every_statement_says_what_it_reads() -> None:
    said = {name: pages for name, pages in SAID.items() if not name.startswith(APART)}
    held = {name for name, pages in said.items() if FORMULA.match(pages)}
    # Those that read catalogs, locks, settings or nothing do not say it.
    assert {name for name in said if not said[name] and OURS.search(statement(name))} == set()
    others = {name: pages for name, pages in said.items() if pages and name not in held}
    assert {name for name in others if not others[name].startswith(("none", "whole tables"))} == set()
    assert held == {case.name for case in CASES}
