"""The doors' own descriptions, held against what they answer."""

import json
import os
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
TOPICS, TRIAGE, ZAQAR = "topics", "triage", "zaqar"
#: The documents as they were when somebody last looked at them.
SNAPSHOTS = {
    TOPICS: _REFERENCE / "http-topics.openapi.json", TRIAGE: _REFERENCE / "http-dead-letters.openapi.json",
    ZAQAR: _REFERENCE / "http-zaqar.openapi.json",
}  # fmt: skip
#: Numbers from here on stand for seqs, and from there on for times.
SEQS, TIMES = 100_000, 1_000_000_000_000
#: Never given, in the page as in truth.
ABSENT = 999_999_999


def made(door: str = TOPICS) -> dict[str, Any]:
    prefix = "v1/" if door == ZAQAR else "v0/"
    generator = SchemaGenerator(patterns=[path(prefix, include(f"django_leasequeue.http.{door}.urls"))])
    found: dict[str, Any] = json.loads(json.dumps(generator.get_schema(request=None, public=True)))
    return found


@cache
def document(door: str = TOPICS) -> dict[str, Any]:
    """The OpenAPI document of a door with the settings that nobody changed, whichever test asks first."""
    with override_settings(LEASEQUEUE={}):
        return made(door)


def check_snapshot(snapshot: Path, found: dict[str, Any]) -> None:
    """After a change on purpose: ``UPDATE_SNAPSHOTS=1 make test ARGS='tests/http -k as_it_was'``, read the diff."""
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        snapshot.write_text(text, encoding="utf-8")
    assert text == snapshot.read_text(encoding="utf-8")


@cache
def _routes(door: str) -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)) + "$"), template)
        # Words before what stands for any word.
        for template in sorted(document(door)["paths"], key=lambda template: str(template).count("{"))
    ]


def template_of(address: str, door: str = TOPICS) -> str:
    """Return an address as the document has it, with names for what differs; "" where it is not there."""
    address = address.partition("?")[0]
    return next((template for pattern, template in _routes(door) if pattern.match(address)), "")


@cache
def _validator(door: str, name: str) -> Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document(door)["components"]})


def operations(door: str = TOPICS) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), template): operation
        for template, methods in document(door)["paths"].items()
        for method, operation in methods.items()
    }


def unnamed(door: str, text: str) -> list[str]:
    """Return the operations and parameters that the text of a door's page does not name."""
    lines = {line.rstrip("/") for line in text.splitlines()}
    headings = [f"### {method} {template.rstrip('/')}" for method, template in operations(door)]
    missing = [heading for heading in headings if heading not in lines]
    for operation in operations(door).values():
        names = {item["name"] for item in operation.get("parameters", []) if item["in"] != "path"} - {"format"}
        missing += [name for name in names if not re.search(rf"[`?]{name}\b", text)]
    return missing


def check(method: str, address: str, status: int, answer: dict[str, Any], door: str = TOPICS) -> None:
    """Check that an answer is one that the document describes: its status, its code, its fields."""
    operation = document(door)["paths"].get(template_of(address, door), {}).get(method.lower())
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


class Reader:
    """Compares answers with the page. What differs from run to run (seqs, leases, watches) it learns and uses later."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {ABSENT: ABSENT}

    def learn(self, written: Any, found: Any) -> None:
        assert self.known.setdefault(written, found) == found
        assert list(self.known.values()).count(found) == 1

    def translate(self, value: Any) -> Any:
        """Return what a request of the page says here."""
        if isinstance(value, dict):
            return {name: self.translate(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.translate(item) for item in value]
        return self.known.get(value, value) if isinstance(value, int | str) else value

    def address(self, path: str) -> str:
        for written, found in self.known.items():
            path = path.replace(str(written), str(found))
        return path

    def compare(self, written: Any, found: Any, place: str) -> None:
        if place.endswith(".performance"):
            assert written.keys() == found.keys(), place
            return
        assert type(written) is type(found), (place, written, found)
        if isinstance(written, dict):
            names = {str(self.known.get(int(name), name)) if name.isdecimal() else name: name for name in written}
            assert names.keys() == found.keys(), place
            for name, item in found.items():
                self.compare(written[names[name]], item, f"{place}.{name}")
        elif isinstance(written, list):
            assert len(written) == len(found), place
            for number, item in enumerate(found):
                self.compare(written[number], item, f"{place}[{number}]")
        else:
            self.compare_item(written, found, place)

    def compare_item(self, written: Any, found: Any, place: str) -> None:
        if isinstance(written, bool) or written is None:
            assert written == found, place
        elif isinstance(written, int) and written >= TIMES:
            assert found >= TIMES, place
        elif (isinstance(written, int) and written >= SEQS and "config" not in place) or place.endswith(
            (".lease_id", ".wid")
        ):
            self.learn(written, found)
        elif place.endswith(".stream_url"):
            assert found == self.address(written)
        else:
            assert written == found, place
