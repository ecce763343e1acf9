"""What every endpoint keeps (spec/topics G1 to G4)."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pytest
from django.db import OperationalError
from rest_framework import exceptions as drf

from django_leasequeue import exceptions as ours
from django_leasequeue.http import payload
from django_leasequeue.http.errors import ApiError, describe
from django_leasequeue.models import Job
from tests.http.client import Api


def test_g1_every_answer_says_what_it_took(api: Api) -> None:
    answers = [
        api.put("topics/q", {"type": "queue"}),
        api.post("topics/q", {"records": [{"data": 1}]}),
        api.post("topics/q/claim", {"node": "w"}),
        api.post("topics/q/extend", {"node": "w", "seqs": [1], "lease_ms": 1000}),
        api.post("topics/q/nack", {"node": "w", "seqs": [1]}),
        api.post("topics/q/ack", {"node": "w", "seqs": [1]}),
        api.post("topics/q/diff", {}),
        api.post("topics/q/delete", {"before_seq": 1}),
        api.get("topics"),
        api.get("topics/q"),
        api.delete("topics/q"),
    ]
    for answer in answers:
        assert answer.status in (200, 201)
        assert isinstance(answer["performance"]["server_total_ms"], float)
        assert answer["performance"].get("fsync_ms", 0.0) == 0.0  # nothing waited for the disk


def test_g1_the_flush_is_told_where_there_is_one(api: Api) -> None:
    for durability, flushes in (("fsync", True), ("disk", False), ("memory", False), ("ephemeral", False)):
        api.queue(durability, durability=durability)
        written = api.post(f"topics/{durability}", {"records": [{"data": 1}]})
        (job,) = api.claim(durability)
        acked = api.ack(durability, [job["$seq"]])
        for answer in (written, acked):
            fsync_ms = answer["performance"]["fsync_ms"]
            assert (fsync_ms > 0) is flushes
            assert fsync_ms < answer["performance"]["server_total_ms"]


def test_g1_the_flush_is_known_after_a_change(api: Api) -> None:
    api.queue()
    assert api.post("topics/jobs", {"records": [{"data": 1}]})["performance"]["fsync_ms"] == 0
    api.put("topics/jobs", {"type": "queue", "durable": True}, status=200)
    assert api.post("topics/jobs", {"records": [{"data": 1}]})["performance"]["fsync_ms"] > 0
    fresh = api.post("topics/new", {"records": [{"data": 1}], "config": {"durable": True}})
    assert fresh["created"] is True
    assert api.post("topics/new", {"records": [{"data": 1}]})["performance"]["fsync_ms"] > 0


def test_g2_g3_every_error_has_one_form(api: Api) -> None:
    """The form itself is checked by the client for every answer of the suite."""
    api.log("log")
    found = {
        (answer.status, answer.code)
        for answer in (
            api.post("topics/log", {}),
            api.post("topics/log/claim", {"node": "w"}),
            api.get("topics/nope"),
            api.get("topics/log/nothing"),
            api.call("PATCH", "topics/log"),
            api.call("DELETE", "topics"),
            api.post("topics/log", raw=b"{}", content_type="text/plain"),
            api.post("topics/log", raw=b"{"),
        )
    }
    assert found == {
        (400, "invalid_request"),
        (409, "not_a_queue"),
        (404, "topic_not_found"),
        (404, "not_found"),
        (405, "method_not_allowed"),
        (415, "unsupported_media_type"),
    }
    assert api.call("PATCH", "topics/log").headers["allow"] == "GET, POST, PUT, DELETE, HEAD"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ours.InvalidOption("x is wrong."), 400, "invalid_request"),
        (ours.BatchTooLarge("too many."), 400, "batch_too_large"),
        (ours.PayloadTooLarge("too large."), 400, "record_too_large"),
        (ours.QueueNotFound("t"), 404, "topic_not_found"),
        (ours.NotAQueue("t"), 409, "not_a_queue"),
        (ours.QueueConflict("type."), 409, "topic_exists_incompatible"),
        (ours.QueueFull("full."), 422, "topic_full"),
        (ours.StorageError("gone."), 503, "not_ready"),
        (OperationalError("connection refused"), 503, "not_ready"),
        (psycopg.OperationalError("connection refused"), 503, "not_ready"),
        (psycopg.errors.NumericValueOutOfRange("value overflows numeric format"), 400, "invalid_request"),
        (drf.NotAuthenticated(), 401, "unauthorized"),
        (drf.AuthenticationFailed(), 401, "unauthorized"),
        (drf.PermissionDenied(), 403, "forbidden"),
        (drf.NotAcceptable(), 406, "not_acceptable"),
        (drf.Throttled(wait=3), 429, "throttled"),
        (ApiError(413, "payload_too_large", "Too large."), 413, "payload_too_large"),
        (RuntimeError("a secret of the server"), 500, "internal"),
    ],
)
def test_g3_codes(error: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = describe(error, "t")
    assert (answer.status, answer.code) == (status, code)
    assert (answer.detail == {"topic": "t"}) is (status in (404, 409))
    assert ("Retry-After" in answer.headers) is (status in (429, 503))
    assert "secret" not in answer.message


def test_g3_an_error_of_ours_is_logged_and_not_told(api: Api, monkeypatch: Any, caplog: Any) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr("django_leasequeue.http.topics.catalog.state", broken)
    with caplog.at_level(logging.ERROR):
        answer = api.get("topics/t", status=500)
    assert answer.code == "internal"
    assert b"secret" not in answer.content
    assert "a secret of the server" in caplog.text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
def test_g4_a_body_that_is_not_json(api: Api, kind: str) -> None:
    answer = api.post("topics/t", raw=b'{"records": [{"data": 1}]}', content_type=kind, status=415)
    assert answer.code == "unsupported_media_type"
    assert "application/json" in answer.message


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/vnd.api+json"])
def test_g4_json_content_types(api: Api, kind: str) -> None:
    api.post("topics/t", raw=b'{"records": [{"data": 1}]}', content_type=kind, status=201)


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"nonsense",
        b"[]",
        b"1",
        b'"x"',
        b"null",
        b'{"records": [{"data": NaN}]}',
        b'{"records": [{"data": Infinity}]}',
        b'{"records": [{"data": 1e400}]}',
        b'{"records": [{"data": "\xff"}]}',
        b'{"records": [{"data": "\\ud800"}]}',
        b'{"records": [{"data": 123456789012345678901234567890, "x": NaN}]}',
        b"{\"records\": [{'data': 1}]}",
        b'{"records": [{"data": 1},]}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_g4_malformed_json(api: Api, raw: bytes) -> None:
    answer = api.post("topics/t", raw=raw, status=400)
    assert answer.code == "invalid_request"
    assert not Job.objects.exists()


def test_g4_depth(api: Api) -> None:
    def nested(depth: int) -> bytes:
        return b'{"records": [{"data": ' + b"[" * depth + b"]" * depth + b"}]}"

    api.post("topics/t", raw=nested(97), status=201)
    for depth in (98, 500, 5_000, 200_000):
        answer = api.post("topics/t", raw=nested(depth), status=400)
        assert answer.code == "invalid_request"
    wide = b'{"records": [' + b",".join([b'{"data": {"a": [1]}}'] * 200) + b"]}"
    api.post("topics/t", raw=wide, status=200)


def test_g4_unknown_fields_are_ignored(api: Api) -> None:
    body = {"records": [{"data": 1, "colour": "red", "$tag": 5}], "colour": "red"}
    api.post("topics/t", body, status=201)
    api.put("topics/q", {"type": "queue", "colour": "red"}, status=201)
    api.post("topics/q/claim?colour=red", {"node": "w", "colour": "red"}, status=200)


def test_g4_no_body_is_an_empty_object(api: Api) -> None:
    api.put("topics/t", raw=b"", content_type="", status=201)
    api.post("topics/t/diff", raw=b"", content_type="", status=200)


def test_g4_the_same_json_with_and_without_orjson(monkeypatch: Any) -> None:
    text = '{"a": [1, 2.5, null, true, "ü\\n", 123456789012345678901234567890], "b": {"c": {}}}'
    value = payload.loads(text.encode())
    body = payload.dumps({"data": payload.raw(text), 5: "x", "none": payload.raw(None)})
    monkeypatch.setattr(payload, "orjson", None)
    assert payload.loads(text.encode()) == value
    assert payload.loads(
        payload.dumps({"data": payload.raw(text), 5: "x", "none": payload.raw(None)})
    ) == payload.loads(body)
    with pytest.raises(ValueError, match="NaN"):
        payload.loads(b"[NaN]")
    with pytest.raises(TypeError):
        payload.dumps({"x": object()})
