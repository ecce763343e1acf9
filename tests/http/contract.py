"""The doors' own descriptions, held against what they answer."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from django.test import override_settings
from django.urls import include, path
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
TOPICS, TRIAGE = "topics", "triage"
#: The documents as they were when somebody last looked at them.
SNAPSHOTS = {TOPICS: _REFERENCE / "http-topics.openapi.json", TRIAGE: _REFERENCE / "http-dead-letters.openapi.json"}


def made(door: str = TOPICS) -> dict[str, Any]:
    """The OpenAPI document of a door with the settings as they are."""
    generator = SchemaGenerator(patterns=[path("v0/", include(f"django_leasequeue.http.{door}.urls"))])
    found: dict[str, Any] = json.loads(json.dumps(generator.get_schema(request=None, public=True)))
    return found


@cache
def document(door: str = TOPICS) -> dict[str, Any]:
    """The OpenAPI document of a door with the settings that nobody changed, whichever test asks first."""
    with override_settings(LEASEQUEUE={}):
        return made(door)


@cache
def _routes(door: str) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    return [
        (re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(address)) + "$"), operations)
        # Words before what stands for any word.
        for address, operations in sorted(document(door)["paths"].items(), key=lambda item: item[0].count("{"))
    ]


@cache
def _validator(door: str, name: str) -> Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document(door)["components"]})


def check(method: str, address: str, status: int, answer: dict[str, Any], door: str = TOPICS) -> None:
    """Check that an answer is one that the document describes: its status, its code, its fields."""
    address = address.split("?", 1)[0]
    operations = next((found for pattern, found in _routes(door) if pattern.match(address)), None)
    operation = operations.get(method.lower()) if operations else None
    if operation is None:
        assert status in (404, 405), (method, address, status)
        return
    described = operation["responses"].get(str(status))
    assert described is not None, f"{method} {address} answers {status}, which is not described"
    reference = described["content"]["application/json"]["schema"]["$ref"]
    errors = list(_validator(door, reference.rpartition("/")[2]).iter_errors(answer))
    assert not errors, f"{method} {address}: {errors[0].message} in {answer}"
    if status >= 400:
        assert f"`{answer['error']['code']}`" in described["description"], (described["description"], answer)
