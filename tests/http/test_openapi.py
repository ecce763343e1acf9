"""The OpenAPI document: complete, valid, and as it was. Every answer of the suite is held against it (``contract``)."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.validation import validate_schema

from django_leasequeue.http.topics import urls
from tests.http.contract import SNAPSHOTS, document

STREAMS = {"streamJobs", "streamRecords"}


def operations() -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation
        for methods in document()["paths"].values()
        for operation in methods.values()
    }


@pytest.mark.parametrize("door", SNAPSHOTS)
def test_the_document_is_as_it_was(door: str) -> None:
    """After a change on purpose: ``UPDATE_SNAPSHOTS=1 make test ARGS=tests/api/test_openapi.py``, read the diff."""
    text = json.dumps(document(door), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOTS[door].write_text(text, encoding="utf-8")
    assert text == SNAPSHOTS[door].read_text(encoding="utf-8")


@pytest.mark.parametrize("door", SNAPSHOTS)
def test_the_document_is_valid_openapi_3_1(door: str) -> None:
    assert document(door)["openapi"].startswith("3.1")
    validate_schema(document(door))


def test_every_address_and_method_is_described() -> None:
    described = {(address, method) for address, methods in document()["paths"].items() for method in methods}
    served = set()
    for pattern in urls.urlpatterns:
        view = getattr(pattern.callback, "cls", None)
        if view is None:
            continue
        address = "/v0/" + str(pattern.pattern).replace("<str:", "{").replace(">", "}")
        methods = [name for name in ("get", "post", "put", "delete") if hasattr(view, name)]
        served |= {(address, name) for name in methods if name in view.http_method_names}
    assert described == served


def test_every_operation_tells_its_errors_and_its_fields() -> None:
    for name, operation in operations().items():
        assert operation["summary"], name
        assert operation["security"] == [{"apiKey": []}]
        for status in ("401", "403", "429", "500", "503"):
            assert status in operation["responses"], (name, status)
        success = operation["responses"].get("200") or operation["responses"]["201"]
        media = "text/event-stream" if name in STREAMS else "application/json"
        assert media in success["content"], name
        if "requestBody" in operation:
            assert {"400", "413", "415"} <= set(operation["responses"]), name
    for name, shape in document()["components"]["schemas"].items():
        for field, description in shape.get("properties", {}).items():
            assert description or field == "data", (name, field)


def test_examples_are_what_they_are_examples_of() -> None:
    from jsonschema import Draft202012Validator

    looked_at = 0
    for operation in operations().values():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for body in bodies:
            content = body.get("content", {}).get("application/json", {})
            for example in content.get("examples", {}).values():
                schema = {**content["schema"], "components": document()["components"]}
                Draft202012Validator(schema).validate(example["value"])
                looked_at += 1
    assert looked_at >= 6


def test_the_pages_of_the_test_project(db: None) -> None:
    client = Client()
    page = client.get("/schema/", headers={"accept": "application/vnd.oai.openapi+json"})
    assert page.status_code == 200
    found = json.loads(page.content)
    assert "/v0/topics/{topic}/claim" in found["paths"]
    assert any(address.startswith("/v1/") for address in found["paths"])
    assert b"swagger" in client.get("/schema/swagger/").content
