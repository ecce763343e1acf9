"""Tenants in schemas: a backend as of django-tenants, which sets the search path when a cursor is made."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.db.backends.postgresql.base import DatabaseWrapper
from django.test import override_settings

from django_leasequeue import Queue
from django_leasequeue.models import StoredJob
from django_leasequeue.tasks import chain
from django_leasequeue.testing import Harness
from tests.support.shop import files
from tests.tasks import samples

PAGE = "how-to/tenants.md"


class Tenants(DatabaseWrapper):
    """What of django-tenants' backend decides where a statement goes."""

    schema_name = "public"

    def _cursor(self, name: str | None = None) -> Any:
        cursor = super()._cursor(name)
        if name is None:
            path = dict.fromkeys([self.schema_name, "public"])
            cursor.execute(f"SET search_path = {', '.join(path)}")
        return cursor


#: The tables of ``public`` once more, empty; partitioned ones as plain tables.
_TABLES = """
DO $$
DECLARE made text;
BEGIN
    CREATE SCHEMA {schema};
    FOR made IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
        AND NOT relispartition AND relname LIKE '{tables}'
    LOOP
        EXECUTE format('CREATE TABLE {schema}.%I (LIKE public.%I INCLUDING ALL)', made, made);
    END LOOP;
END $$
"""


@pytest.fixture
def tenants(request: pytest.FixtureRequest, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The schemas alpha, which is set, and beta; they have the tables of the app, or those that a test names."""
    with connection.cursor() as cursor:
        for schema in ("alpha", "beta"):
            cursor.execute(_TABLES.format(schema=schema, tables=getattr(request, "param", "leasequeue%")))
    monkeypatch.setattr(connections["default"], "__class__", Tenants)
    try:
        with schema_context("alpha"):
            yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA alpha, beta CASCADE")
        connection.close()


@contextmanager
def schema_context(schema: str) -> Iterator[None]:
    before = connection.schema_name  # type: ignore[attr-defined]
    connection.schema_name = schema  # type: ignore[attr-defined]
    try:
        yield
    finally:
        connection.schema_name = before  # type: ignore[attr-defined]


def keys(schema: str) -> set[str | None]:
    with schema_context(schema):
        return set(StoredJob.objects.values_list("key", flat=True))


@pytest.mark.parametrize("around", [False, True], ids=["alone", "atomic"])
def test_a_job_lands_in_the_schema_that_is_set_without_a_query_before(tenants: None, around: bool) -> None:
    assert keys("alpha") == set(), "the session is in alpha now"
    with schema_context("beta"):
        if around:
            with transaction.atomic():
                results = [samples.add.enqueue(1), *samples.add.enqueue_many([(1,)] * 150)]
        else:
            results = [samples.add.enqueue(1), *samples.add.enqueue_many([(1,)] * 150)]
    assert keys("alpha") == keys("public") == set()
    assert keys("beta") == {result.id for result in results}


def test_so_do_workflows_and_jobs_of_a_queue(tenants: None) -> None:
    for enqueue in (chain(samples.add.si(1), samples.add.si(2)).enqueue, lambda: Queue("work").enqueue(1, key="k")):
        assert len(keys("beta")) in (0, 2)
        assert keys("alpha") == set()
        with schema_context("beta"):
            enqueue()
    assert (keys("alpha"), len(keys("beta"))) == (set(), 3)


def groups(schema: str) -> list[str]:
    with schema_context(schema):
        return list(Group.objects.values_list("name", flat=True))


@pytest.mark.parametrize("tenants", ["auth_group"], indirect=True)
def test_with_shared_queues_a_task_runs_in_the_schema_of_its_caller(
    tenants: None, leasequeue: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    utils = ModuleType("django_tenants.utils")
    utils.schema_context = schema_context  # type: ignore[attr-defined]  # of the simulated backend
    monkeypatch.setitem(sys.modules, "django_tenants", ModuleType("django_tenants"))
    monkeypatch.setitem(sys.modules, "django_tenants.utils", utils)
    with files(PAGE, tmp_path, monkeypatch):
        with override_settings(LEASEQUEUE=importlib.import_module("shop.tenant_settings").LEASEQUEUE):
            importlib.import_module("shop.views").welcome()
            with schema_context("public"):
                assert [ran.result for ran in leasequeue.drain()] == [["of alpha"], ["of beta"]]
                assert connection.schema_name == "public"  # type: ignore[attr-defined]
            with pytest.raises(TypeError, match="aecho is async"):
                samples.aecho.enqueue()
    assert (groups("alpha"), groups("beta"), groups("public")) == (["of alpha"], ["of beta"], [])
