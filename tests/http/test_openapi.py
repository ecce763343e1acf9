"""The OpenAPI document: complete, valid, and as it was. Every answer of the suite is held against it (``contract``)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from drf_spectacular.settings import patched_settings
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator

from django_leasequeue.http.schema import as_of_3_0
from tests.http.client import Api
from tests.http.contract import SNAPSHOTS, TOPICS, TRIAGE, ZAQAR, check_snapshot, document, made, operations

STREAMS = {"streamJobs", "streamRecords"}


@pytest.mark.parametrize("door", SNAPSHOTS)
def test_the_document_is_as_it_was_and_valid_openapi_3_1(door: str) -> None:
    check_snapshot(SNAPSHOTS[door], document(door))
    assert document(door)["openapi"].startswith("3.1")
    validate_schema(document(door))


@pytest.mark.parametrize("version", ["3.0.3", "3.1.1"])
def test_a_host_s_document_with_all_our_addresses_is_valid(version: str, tmp_path: Path) -> None:
    """The test project mounts every API as the documentation says; 3.0.3 is what drf-spectacular makes by default."""
    file = tmp_path / "schema.json"
    how = {"urlconf": "testproject.urls", "format": "openapi-json", "file": str(file)}
    with patched_settings({"OAS_VERSION": version}):
        call_command("spectacular", validate=True, fail_on_warn=True, **how)
    found = json.loads(file.read_text())
    assert found["openapi"] == version
    assert {"/v0/topics/{topic}", "/v0/dead-letters", "/v1/queues/{queue}/"} <= set(found["paths"])
    letters = found["components"]["schemas"]["DeadLetters"]["properties"]
    empty = {"type": "string", "nullable": True} if version == "3.0.3" else {"type": ["string", "null"]}
    assert letters["next_cursor"].items() >= empty.items()


def test_what_openapi_3_0_cannot_say_is_said_in_its_words() -> None:
    given = {
        "type": ["object", "null"], "propertyNames": {"pattern": "^a"},
        "additionalProperties": {"type": ["string", "integer"], "description": "d"},
        "properties": {"x": {"oneOf": [{"type": "object", "required": ["y"]}, {"type": "null"}]}},
        "examples": {"Data": {"value": {"type": ["a", "null"]}}},
    }  # fmt: skip
    assert as_of_3_0(given) == {
        "type": "object", "nullable": True,
        "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "d"},
        "properties": {"x": {"type": "object", "required": ["y"], "nullable": True}},
        "examples": given["examples"],
    }  # fmt: skip


@pytest.mark.parametrize("door", SNAPSHOTS)
def test_every_operation_has_a_name_a_summary_and_its_errors(door: str) -> None:
    for place, operation in operations(door).items():
        assert operation["summary"], place
        assert operation["operationId"].startswith("zaqar_") is (door == ZAQAR), place
        assert {"400", "403", "429", "503"} <= set(operation["responses"]), place


def test_every_operation_tells_its_errors_and_its_fields() -> None:
    for operation in operations().values():
        name = operation["operationId"]
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


class TestFigures:
    @pytest.fixture
    def schemas(self, settings: Any, api: Api) -> Callable[..., Any]:
        def change(**changed: Any) -> Any:
            door = {"ACCESS": "open", "COUNT_SECONDS": 0, **changed.pop("API", {})}
            settings.LEASEQUEUE = {**changed, "API": door}
            return made()["components"]["schemas"]

        return change

    @pytest.mark.parametrize(("setting", "value", "good", "bad", "code"), [
        ("MAX_ENQUEUE", 2, [1] * 2, [1] * 3, "batch_too_large"),
        ("MAX_PAYLOAD_BYTES", 2_000, ["x" * 1_900], ["x" * 2_100], "record_too_large"),
    ])  # fmt: skip
    def test_records_of_a_write(
        self, api: Api, schemas: Callable[..., Any], setting: str, value: int, good: Any, bad: Any, code: str
    ) -> None:
        records = schemas(**{setting: value})["WriteBody"]["properties"]["records"]
        payload = records["items"]["properties"]["data"]["description"]
        assert f"{value:,}" in (str(records["maxItems"]) if setting == "MAX_ENQUEUE" else payload)
        for data, status in ((good, 201), (bad, 400)):
            answer = api.post("topics/t", {"records": [{"data": item} for item in data]}, status=status)
        assert answer.code == code

    def test_bytes_of_a_result(self, api: Api, schemas: Callable[..., Any]) -> None:
        results = schemas(MAX_RESULT_BYTES=50)["AckBody"]["properties"]["results"]
        assert "50 bytes" in results["items"]["description"]
        api.queue()
        api.write("jobs", 1)
        (job,) = api.claim("jobs")
        body = {"node": "w", "seqs": [job["$seq"]], "results": ["x" * 60]}
        assert api.post("topics/jobs/ack", body, status=400).code == "record_too_large"

    @pytest.mark.django_db(transaction=True)
    def test_records_of_a_page(self, api: Api, schemas: Callable[..., Any]) -> None:
        limit = schemas(MAX_PAGE=2)["DiffBody"]["properties"]["limit"]
        assert limit["description"] == "Cut to 2."
        api.log("t")
        api.write("t", 1, 2, 3)
        assert len(api.post("topics/t/diff", {"limit": 3}, status=200)["records"]) == 2

    @pytest.mark.parametrize(("door", "address"), [(TOPICS, "/v0/topics"), (TRIAGE, "/v0/dead-letters")])
    def test_lines_of_a_page(self, door: str, address: str, schemas: Callable[..., Any]) -> None:
        schemas(MAX_PAGE=7)
        (size,) = [one for one in made(door)["paths"][address]["get"]["parameters"] if one["name"] == "page_size"]
        assert (size["description"], size["schema"]["default"]) == ("Cut to 7.", 7)

    def test_topics_of_a_watch(self, api: Api, schemas: Callable[..., Any]) -> None:
        topics = schemas(API={"MAX_WATCHED": 1})["WatchBody"]["properties"]["topics"]
        assert topics["maxProperties"] == 1
        api.log("a")
        api.log("b")
        api.post("watch", {"topics": {"a": 0}}, status=200)
        api.post("watch", {"topics": {"a": 0, "b": 0}}, status=400)

    def test_bodies(self, api: Api, schemas: Callable[..., Any]) -> None:
        schemas(API={"MAX_BODY_BYTES": 1_000, "MAX_DEPTH": 4, "WATCH_SECONDS": 90})
        answers = made()["paths"]["/v0/topics/{topic}"]["post"]["responses"]
        assert "more than 1,000 bytes" in answers["413"]["description"]
        assert "nested 4 deep" in answers["415"]["description"]
        assert "within 90 s" in made()["paths"]["/v0/watch"]["post"]["description"]
        api.post("topics/t", {"records": [{"data": [1]}]}, status=201)
        api.post("topics/t", {"records": [{"data": [[1]]}]}, status=400)
        assert api.post("topics/t", {"records": [{"data": "x" * 1_000}]}, status=413).code == "payload_too_large"
        api.post("topics/t", {"records": [{"data": "x" * 900}]}, status=200)


def test_every_topic_is_listed_where_a_page_is_as_long_as_it_may_be(api: Api, settings: Any) -> None:
    for number in range(5):
        api.log(f"t{number}")
    settings.LEASEQUEUE = {**settings.LEASEQUEUE, "MAX_PAGE": 2}
    for size in ("", "&page_size=2", "&page_size=9"):
        found, cursor = [], ""
        for _ in range(5):
            page = api.get(f"topics?prefix=t{size}{cursor}", status=200)
            found += [line["topic"] for line in page["topics"]]
            if "next_cursor" not in page.json:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert found == [f"t{number}" for number in range(5)]


def test_the_pages_of_the_test_project(db: None) -> None:
    client = Client()
    page = client.get("/schema/", headers={"accept": "application/vnd.oai.openapi+json"})
    assert page.status_code == 200
    found = json.loads(page.content)
    assert "/v0/topics/{topic}/claim" in found["paths"]
    assert any(address.startswith("/v1/") for address in found["paths"])
    assert b"swagger" in client.get("/schema/swagger/").content
