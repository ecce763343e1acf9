"""What an installation needs: libpq is the project's choice, and only the HTTP doors need DRF."""

import tomllib
from pathlib import Path

import pytest

from tests.support.absent import run_without

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

HOST = """
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="host",
    INSTALLED_APPS=[
        *(["django_tasks"] if django.VERSION < (6, 0) else []),
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.postgres",
        "django.contrib.sessions",
        "pgtrigger",
        "django_leasequeue",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "nowhere"}},
    TASKS={"default": {"BACKEND": "django_leasequeue.tasks.LeaseQueueBackend", "QUEUES": []}},
)
django.setup()

from importlib import import_module
from pkgutil import iter_modules, walk_packages

import django_leasequeue

others = ("http", "metrics", "migrations", "spark")
for part in iter_modules(django_leasequeue.__path__):
    if part.name not in others:
        module = import_module(f"django_leasequeue.{part.name}")
        for inner in walk_packages(getattr(module, "__path__", []), f"{module.__name__}."):
            import_module(inner.name)
"""


@pytest.mark.slow
def test_all_but_the_http_doors_work_without_drf() -> None:
    done = run_without({"rest_framework"}, HOST)
    assert (done.returncode, done.stderr) == (0, "")


def test_libpq_is_not_forced_on_anybody() -> None:
    extras = PROJECT["optional-dependencies"]
    assert [item for item in PROJECT["dependencies"] if item.startswith("psycopg")] == ["psycopg[pool]>=3.2,<4"]
    # The tests and the demo work where there is no libpq.
    assert "psycopg[binary]" in extras["embedded"]
    assert "embedded" in extras["test"][0]
