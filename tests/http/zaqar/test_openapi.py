"""The door describes itself: every address, every status that the tests see, valid OpenAPI."""

import json
import os
from pathlib import Path

import pytest
from django.conf import settings

pytest.importorskip("drf_spectacular")

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

OPERATIONS = {
    ("/v1/queues", "get"),
    ("/v1/queues/{queue}", "delete"),
    ("/v1/queues/{queue}", "get"),
    ("/v1/queues/{queue}", "put"),
    ("/v1/queues/{queue}/claims", "post"),
    ("/v1/queues/{queue}/claims/{claim}", "delete"),
    ("/v1/queues/{queue}/claims/{claim}", "get"),
    ("/v1/queues/{queue}/claims/{claim}", "patch"),
    ("/v1/queues/{queue}/messages", "delete"),
    ("/v1/queues/{queue}/messages", "get"),
    ("/v1/queues/{queue}/messages", "post"),
    ("/v1/queues/{queue}/messages/{message}", "delete"),
    ("/v1/queues/{queue}/messages/{message}", "get"),
    ("/v1/queues/{queue}/metadata", "get"),
    ("/v1/queues/{queue}/metadata", "put"),
    ("/v1/queues/{queue}/stats", "get"),
    ("/v1/health", "get"),
}


def test_every_operation_is_described_with_its_errors() -> None:
    schema = SchemaGenerator(urlconf="tests.http.zaqar.conftest").get_schema(request=None, public=True)
    validate_schema(schema)
    found = {
        (path.rstrip("/"), method): operation
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    }
    assert set(found) >= OPERATIONS
    for place in OPERATIONS:
        operation = found[place]
        assert operation["operationId"].startswith("zaqar_")
        assert operation["summary"]
        assert {"400", "403", "429", "503"} <= set(operation["responses"])
    post = found["/v1/queues/{queue}/messages", "post"]
    assert post["requestBody"]["content"]["application/json"]["schema"]["maxItems"] == 20


def test_the_document_is_as_it_was() -> None:
    """After a change on purpose: ``UPDATE_SNAPSHOTS=1 make test ARGS=tests/api/zaqar``, then read the diff."""
    snapshot = Path(settings.BASE_DIR) / "docs/reference/http-zaqar.openapi.json"
    schema = SchemaGenerator(urlconf="tests.http.zaqar.conftest").get_schema(request=None, public=True)
    schema["info"]["version"] = "1"
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        snapshot.write_text(text, encoding="utf-8")
    assert text == snapshot.read_text(encoding="utf-8")
