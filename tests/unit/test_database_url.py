"""DATABASE_URL to DATABASES and back."""

import os

import pytest
from django.conf import settings

from django_leasequeue.devdb import InvalidDatabaseURL, database_from_url, url_from_database


def database(**changes: object) -> dict[str, object]:
    empty = {"ENGINE": "django.db.backends.postgresql", "NAME": "", "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}
    return {**empty, **changes}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgres://app:secret@db.example:6432/jobs",
            database(NAME="jobs", USER="app", PASSWORD="secret", HOST="db.example", PORT="6432"),
        ),
        ("postgresql:///jobs", database(NAME="jobs")),
        (
            "postgresql://app:p%40ss%2Fw%3Ard@h/j%20obs",
            database(NAME="j obs", USER="app", PASSWORD="p@ss/w:rd", HOST="h"),
        ),
        (
            "postgres://postgres@/jobs?host=/run/postgresql&port=5433",
            database(NAME="jobs", USER="postgres", HOST="/run/postgresql", PORT="5433"),
        ),
        ("postgres://%2Frun%2Fpostgresql/jobs", database(NAME="jobs", HOST="/run/postgresql")),
        ("postgresql://[::1]:5432/jobs", database(NAME="jobs", HOST="::1", PORT="5432")),
        ("postgresql://a:1,b:2/jobs", database(NAME="jobs", HOST="a,b", PORT="1,2")),
        (
            "postgresql://h/jobs?sslmode=require&connect_timeout=10",
            database(NAME="jobs", HOST="h", OPTIONS={"sslmode": "require", "connect_timeout": "10"}),
        ),
        ("host=/run/postgresql dbname=jobs", database(NAME="jobs", HOST="/run/postgresql")),
        ("  postgresql://h/jobs\n", database(NAME="jobs", HOST="h")),
    ],
)
def test_reads_what_libpq_reads(url: str, expected: dict[str, object]) -> None:
    assert database_from_url(url) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "is empty"), ("   ", "is empty"), ("mysql://app:hunter2@h/jobs", "'mysql'"),
        ("sqlite:///jobs.db", "'sqlite'"), ("postgresql://app:hunter2@h", "names no database"),
        ("postgresql://app:hunter2@h/jobs?nonsense=1", "cannot be read"),
        ("postgresql://app:hunter2%zz@h/jobs", "cannot be read"), ("app:hunter2@h/jobs", "cannot be read"),
    ],
)  # fmt: skip
def test_says_what_is_wrong_and_never_the_password(url: str, message: str) -> None:
    with pytest.raises(InvalidDatabaseURL, match=message) as caught:
        database_from_url(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "entry",
    [
        database(NAME="jobs"),
        database(NAME="j/o b?s", USER="a@b", PASSWORD="p:/?#&%", HOST="h", PORT="5432"),
        database(NAME="jobs", USER="postgres", HOST="/a b/c&d", PORT="5432"),
        database(NAME="jobs", HOST="h", OPTIONS={"sslmode": "require", "application_name": "a=b c"}),
    ],
)
def test_a_url_made_from_a_database_leads_back_to_it(entry: dict[str, object]) -> None:
    assert database_from_url(url_from_database(entry)) == entry


def test_options_of_django_are_not_put_into_the_url() -> None:
    entry = database(NAME="jobs", OPTIONS={"pool": True, "isolation_level": 4, "connect_timeout": 3})
    assert url_from_database(entry) == "postgresql:///jobs?connect_timeout=3"


def test_children_that_inherit_the_environment_never_find_another_database() -> None:
    assert os.environ["DATABASE_URL"] not in {settings.DATABASE_URL, settings.EMBEDDED_DATABASE.url()}
