"""A role that may only read: what docs/reference/lake.md tells to grant is enough, also for partitions made later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings as django_settings

from django_leasequeue.engine import partitions
from django_leasequeue.engine.pool import connect
from tests.engine.helpers import make, one, put
from tests.engine.lease_log import drawn, put_back
from tests.spark.conftest import Source
from tests.support.documents import blocks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def role(database: psycopg.Connection[Any]) -> Iterator[str]:
    """A role with the rights that the documentation names; the log is put back as the migration made it."""
    put_back()
    database.execute("CREATE ROLE reporting LOGIN")
    (grants,) = [block.text for block in blocks("reference/lake.md") if block.text.startswith("GRANT")]
    database.execute(grants)
    yield "reporting"
    database.execute("DROP OWNED BY reporting; DROP ROLE reporting")
    put_back()


@pytest.fixture
def reading(source: Source, role: str) -> Source:
    """The data source, signed in as the role."""
    source.options = {**source.options, "user": role}
    return source


def test_it_reads_every_partition_also_those_made_later(reading: Source, settings: Any) -> None:
    settings.LEASEQUEUE = {"EVENT_PARTITION_ROWS": 100, "EVENT_PARTITIONS_AHEAD": 2}
    make("work")
    put(3)
    drawn(1_499_990)
    with connect("default") as own:
        assert len(partitions.maintain(own).made) == 2
    put(30, name="later")
    one()
    for number in range(10):
        put(1, name=f"name-{number}")
    rows = reading.read("events").select("id", "queue", "event").collect()
    assert len(rows) == 3 + 30 + 1 + 10
    assert max(row.id for row in rows) // 1024 >= 1_500_000
    assert {row.queue for row in rows} == {"work"}
    assert reading.read("jobs").count() == 43
    assert reading.read("results").count() == 0


def test_the_documentation_names_no_right_but_reading() -> None:
    text = (Path(django_settings.BASE_DIR) / "docs/reference/lake.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^GRANT (\w+)", text, re.MULTILINE)) == {"SELECT"}
