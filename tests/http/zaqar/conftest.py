"""Requests to the door with an ordinary client's headers."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import include, path

from django_leasequeue import engine

urlpatterns = [path("v1/", include("django_leasequeue.http.zaqar.urls"))]


class Zaqar:
    """One project, one client; answers with (status, document, headers)."""

    def __init__(self, project: str | None = "demo", client: str | None = None) -> None:
        self.http = Client()
        self.client = client or str(uuid.uuid4())
        self.headers: dict[str, str] = {"Client-ID": self.client, "Accept": "application/json"}
        if project is not None:
            self.headers["X-Project-Id"] = project

    def __call__(self, method: str, url: str, body: Any = None, *, raw: str | None = None, **headers: str) -> Any:
        data = raw if raw is not None else ("" if body is None else json.dumps(body))
        merged = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.http.generic(method, url, data, content_type="application/x-anything", headers=merged)

    def post(self, queue: str, *bodies: Any, ttl: int = 300) -> list[str]:
        answer = self("POST", f"/v1/queues/{queue}/messages", [{"ttl": ttl, "body": body} for body in bodies])
        assert answer.status_code == 201, answer.content
        resources: list[str] = answer.json()["resources"]
        return resources

    def claim(self, queue: str, limit: int = 10, ttl: int = 100, grace: int = 60) -> Any:
        return self("POST", f"/v1/queues/{queue}/claims?limit={limit}", {"ttl": ttl, "grace": grace})


@pytest.fixture(autouse=True)
def _door(db: None) -> Iterator[None]:
    with override_settings(ROOT_URLCONF="tests.http.zaqar.conftest", LEASEQUEUE={"API": {"ACCESS": "open"}}):
        yield


@pytest.fixture
def zaqar() -> Zaqar:
    return Zaqar()


@pytest.fixture
def queue() -> str:
    engine.run(engine.create("fizbit", project="demo", preset="zaqar"))
    return "fizbit"
