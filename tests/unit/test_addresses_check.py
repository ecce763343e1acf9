"""The system check of the host's URLs."""

import os
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path, re_path

from django_leasequeue.checks.addresses import check_addresses


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


TOPICS = path("v0/", include("django_leasequeue.http.topics.urls"))
TRIAGE = path("v0/", include("django_leasequeue.http.triage.urls"))
ZAQAR = path("v1/", include("django_leasequeue.http.zaqar.urls"))


def hidden(*patterns: Any) -> Sequence[str]:
    urls = ModuleType("urls_of_a_host")
    urls.urlpatterns = list(patterns)  # type: ignore[attr-defined]  # what Django looks for
    with override_settings(ROOT_URLCONF=urls):
        found = check_addresses(None)
    assert {message.id for message in found} <= {"leasequeue.W024"}
    assert all(message.hint for message in found)
    return [message.msg.split("'")[1] for message in found]


def test_what_stands_before_the_topics_or_elsewhere_is_reached() -> None:
    assert hidden(TRIAGE, path("v0/report", view), TOPICS, ZAQAR, path("v1/report", view), path("v01/", view)) == []


def test_what_stands_behind_them_is_not() -> None:
    assert hidden(TOPICS, path("v0/report", view), re_path(r"^v0/other$", view)) == ["v0/report", "v0/other$"]
    assert hidden(TOPICS, TRIAGE) == [
        "v0/dead-letters", "v0/dead-letters/groups", "v0/dead-letters/<str:seq>",
        "v0/dead-letters/<str:seq>/redrive", "v0/jobs", "v0/workflows/<str:workflow>",
        "v0/limits",
    ]  # fmt: skip
    assert hidden(path("queues/", include([TOPICS, path("v0/report", view)]))) == ["queues/v0/report"]


def test_our_own_project_is_right() -> None:
    assert check_addresses(None) == []


@pytest.mark.slow
@pytest.mark.parametrize("module", ["addresses", "database", "settings"])
def test_every_check_is_registered_when_django_has_started(module: str) -> None:
    """In a process of its own: here the tests have imported them."""
    script = (
        "import django; django.setup();"
        "from django.core.checks.registry import registry;"
        "print({check.__module__ for check in registry.get_checks(include_deployment_checks=True)})"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert f"django_leasequeue.checks.{module}" in done.stdout, done.stderr
