"""What every endpoint keeps."""

import gzip
import json
import logging
from collections.abc import Callable
from typing import Any

import hypothesis
import psycopg
import pytest
from django.db import OperationalError
from hypothesis import given
from hypothesis import strategies as st
from rest_framework import exceptions as drf

from django_leasequeue import exceptions as ours
from django_leasequeue.http import payload
from django_leasequeue.http.errors import ApiError, describe
from django_leasequeue.models import StoredJob
from tests.http.client import Answer, Api, Ask, check


def test_the_time_of_the_flush_is_reported_where_there_is_one(api: Api) -> None:
    for durability, flushes in (("fsync", True), ("disk", False), ("memory", False), ("ephemeral", False)):
        api.queue(durability, durability=durability)
        written = api.post(f"topics/{durability}", {"records": [{"data": 1}]})
        (job,) = api.claim(durability)
        acked = api.ack(durability, [job["$seq"]])
        for answer in (written, acked):
            fsync_ms = answer["performance"]["fsync_ms"]
            assert (fsync_ms > 0) is flushes
            assert fsync_ms < answer["performance"]["server_total_ms"]
    api.queue()  # and after a change
    assert api.post("topics/jobs", {"records": [{"data": 1}]})["performance"]["fsync_ms"] == 0
    api.put("topics/jobs", {"type": "queue", "durable": True}, status=200)
    assert api.post("topics/jobs", {"records": [{"data": 1}]})["performance"]["fsync_ms"] > 0


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"])
@pytest.mark.parametrize("path", [
    "", "/", "/nothing", "/nothing/", "/topics/", "/topics/t/", "/topics/t/claim/x", "//",
    "/topics/t%0A/jobs/-1/steps",
])  # fmt: skip
def test_an_unknown_address_is_404(api: Api, method: str, path: str) -> None:
    answer = api.client.generic(method, f"/v0{path}", b"{}", content_type="application/json")
    assert (answer.status_code, answer["content-type"]) == (404, "application/json")
    if method != "HEAD":
        check(Answer(answer))
        assert answer.json()["error"]["code"] == "not_found"


def test_a_method_that_an_address_does_not_have_is_405(api: Api) -> None:
    for method, path, allowed in (("PATCH", "topics/log", "GET, POST, PUT, DELETE, HEAD"), ("DELETE", "topics", "GET")):
        answer = api.call(method, path, status=405)
        assert (answer.code, answer.headers["allow"].startswith(allowed)) == ("method_not_allowed", True)


@pytest.mark.parametrize(("error", "status", "code"), [
    (ours.InvalidOption("x is wrong."), 400, "invalid_request"),
    (ours.BatchTooLarge("too many."), 400, "batch_too_large"),
    (ours.PayloadTooLarge("too large."), 400, "record_too_large"), (ours.QueueNotFound("t"), 404, "topic_not_found"),
    (ours.NotAQueue("t"), 409, "not_a_queue"), (ours.QueueConflict("type."), 409, "topic_exists_incompatible"),
    (ours.QueueFull("full."), 422, "topic_full"), (ours.StorageError("gone."), 503, "not_ready"),
    (OperationalError("connection refused"), 503, "not_ready"),
    (psycopg.OperationalError("connection refused"), 503, "not_ready"),
    (psycopg.errors.NumericValueOutOfRange("value overflows numeric format"), 400, "invalid_request"),
    (drf.NotAuthenticated(), 401, "unauthorized"), (drf.AuthenticationFailed(), 401, "unauthorized"),
    (drf.PermissionDenied(), 403, "forbidden"), (drf.NotAcceptable(), 406, "not_acceptable"),
    (drf.Throttled(wait=3), 429, "throttled"),
    (ApiError(413, "payload_too_large", "Too large."), 413, "payload_too_large"),
    (RuntimeError("a secret of the server"), 500, "internal"),
])  # fmt: skip
def test_each_exception_has_its_status_and_code(
    error: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = describe(error, "t")
    assert (answer.status, answer.code) == (status, code)
    assert (answer.detail == {"topic": "t"}) is (status in (404, 409))
    assert ("Retry-After" in answer.headers) is (status in (429, 503))
    assert "secret" not in answer.message


def test_an_internal_error_is_logged_and_not_shown(api: Api, monkeypatch: Any, caplog: Any) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr("django_leasequeue.http.topics.catalog.state", broken)
    with caplog.at_level(logging.ERROR):
        answer = api.get("topics/t", status=500)
    assert (answer.code, b"secret" in answer.content) == ("internal", False)
    assert "a secret of the server" in caplog.text


def test_a_body_of_another_content_type_is_refused(api: Api) -> None:
    raw = b'{"records": [{"data": 1}]}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"):
        answer = api.post("topics/t", raw=raw, content_type=kind, status=415)
        assert (answer.code, "application/json" in answer.message) == ("unsupported_media_type", True)
    for kind in ("application/json", "application/json; charset=utf-8", "application/vnd.api+json"):
        assert api.post("topics/t", raw=raw, content_type=kind).status in (200, 201)
    api.put("topics/u", raw=b"", content_type="", status=201)  # no body is an empty object
    api.post("topics/u/diff", raw=b"", content_type="", status=200)


@pytest.mark.parametrize("raw", [
    b"{", b"nonsense", b"[]", b"1", b'"x"', b"null", b'{"records": [{"data": NaN}]}',
    b'{"records": [{"data": Infinity}]}', b'{"records": [{"data": 1e400}]}', b'{"records": [{"data": "\xff"}]}',
    b'{"records": [{"data": "\\ud800"}]}', b'{"records": [{"data": 123456789012345678901234567890, "x": NaN}]}',
    b"{\"records\": [{'data': 1}]}", b'{"records": [{"data": 1},]}', b"\xef\xbb\xbf{}",
    b'{"records": [{"data": -1e400}]}', b'{"records": [{"data": %b}]}' % (b"1" * 5_000),
    b'{"records": [{"data": -1%b}]}' % (b"0" * 309),
    b'{"records": [{"data": 1, "tag": 1e3}]}', b'{"records": [{"data": 1}], "create": 1.0}',
])  # fmt: skip
@pytest.mark.usefixtures("either")
def test_malformed_json_is_refused(api: Api, raw: bytes) -> None:
    answer = api.post("topics/t", raw=raw, status=400)
    assert answer.code == "invalid_request"
    assert not StoredJob.objects.exists()


@pytest.mark.parametrize("path", ["/v0/topics/new", "/v0/events/paid", "/v1/queues/jobs/messages"])
def test_a_chunked_body_which_wsgi_does_not_pass_on_is_refused(api: Api, path: str) -> None:
    api.queue()
    headers = {"transfer-encoding": "chunked", "client-id": "3381af92-2b9e-11e3-b191-71861300734c"}
    answer = api.client.generic("PUT" if path.endswith("new") else "POST", path, headers=headers)
    assert (answer.status_code, b"Content-Length" in answer.content) == (411, True), answer.content


def test_a_header_that_names_the_project_of_somebody_else_is_refused(db: None, ask: Ask) -> None:
    for named, status in (("tenant", 200), ("other", 403)):
        headers = {"x-project-id": named}
        rights: dict[str, Any] = {"scopes": ("read", "projects"), "project": "tenant", "headers": headers}
        assert ask("dead-letters", **rights)[0] == status


def test_unknown_fields_are_ignored_and_named(api: Api) -> None:
    body = {
        "records": [{"data": 1, "colour": "red", "$tag": 5}, {"data": 2, "colour": "blue"}],
        "colour": "red",
        "config": {"type": "log", "shape": 1},
    }
    names = ["colour", "config.shape", "records[].$tag", "records[].colour"]
    said = [f"The field {name!r} is not known here: it was ignored." for name in names]
    assert api.post("topics/t", body, status=201)["warnings"] == said
    claims = {"node": "w", "seqs": [1], "claims": [1]}
    for answer, name in (
        (api.put("topics/q", {"type": "queue", "colour": "red"}, status=201), "colour"),
        (api.post("topics/q/claim?colour=red", {"node": "w", "colour": "red"}, status=200), "colour"),
        (api.post("topics/q/ack", claims, status=200), "claims"),
        (api.post("topics/q/nack", {**claims, "delay": 5}, status=200), "delay"),
        (api.post("topics/q/extend", {**claims, "lease_ms": 5000, "ttl": 5}, status=200), "ttl"),
        (api.post("topics/q/diff", {"since": 5}, status=200), "since"),
        (api.post("topics/q/delete", {"match": "x", "tag": 5}, status=200), "tag"),
        (api.post("watch", {"topics": {"q": 0}, "node": 5}, status=200), "node"),
    ):
        assert any(repr(name) in warning for warning in answer["warnings"]), answer
    assert "warnings" not in api.post("topics/q/claim", {"node": "w", "lease_ms": None}, status=200).json
    assert "warnings" not in api.get("topics/q", status=200).json


def test_warnings_are_few_and_short(api: Api) -> None:
    body = {"records": [{"data": 1, f"{n:03}" + "ü\n" * 1_000: 1} for n in range(100)]}
    warnings = api.post("topics/t", body, status=201)["warnings"]
    assert len(warnings) == 20
    assert all(len(warning) < 1_000 for warning in warnings)


#: Numbers that Python writes in another way.
NUMBERS = [
    "1e300", "1.0", "-1.50", "0.10", "1E5", "1e+5", "-0", "-0.0", "0e0", "1.0e-7", "0.00001", "12345678901234567890",
    "1.7976931348623157e308", "9007199254740993.0", "3.14159265358979323846", "1234567890.1234567", "0.1", "100", "2.5",
]  # fmt: skip


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_written_as_it_was(api: Api, number: str) -> None:
    api.queue("q")
    shapes = [number, f'[{number},"{number}"]', f'{{"x":{{"y":{number}}},"n":[1,{number}]}}']
    records = ",\n".join(f'{{"data": {shape}, "meta": {{"n":{number}}}}}' for shape in shapes)
    api.post("topics/q", raw=f'{{"records": [{records}]}}'.encode(), status=200)
    answer = api.post("topics/q/claim", {"node": "w", "max": 3})
    for shape in shapes:
        assert f'"data":{shape}'.encode() in answer.content
    assert answer.content.count(f'"meta":{{"n":{number}}}'.encode()) == 3


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner, max_size=9),
    max_leaves=60,
)


@hypothesis.settings(max_examples=40)
@given(_JSON, st.sampled_from([None, 1]), st.integers(5, 300), st.data())
def test_a_text_in_pieces_is_the_same_or_as_wrong(value: Any, indent: int | None, window: int, data: Any) -> None:
    def outcome(parse: Callable[[], Any]) -> Any:
        try:
            return parse()
        except ValueError as error:
            return str(error).split(":", 1)[0]

    text = json.dumps(value, indent=indent, ensure_ascii=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(["", ",", "]", "}", '"', "1", "\\", " "])) + text[at + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload, "WINDOW", window)
        patch.setattr(payload, "REST", 0)
        found = outcome(payload.PieceParser(text.encode(), json.JSONDecoder(), 100).parse)
    assert found == outcome(lambda: json.loads(text))


def test_large_numbers_depth_and_constants_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "IN_PIECES", 1)
    monkeypatch.setattr(payload, "WINDOW", 8)
    text = f"[{', '.join(NUMBERS)}]"
    assert payload.dumps(payload.loads(text.encode())).decode() == text.replace(" ", "")
    assert payload.loads('[1, "ü", 1.5]'.encode()) == [1, "ü", 1.5]
    for wrong, message in ("[NaN]", "NaN"), ("[1e999]", "too large"), ("[" * 200 + "]" * 200, "nested too deep"):
        with pytest.raises(ValueError, match=message):
            payload.loads(wrong.encode())


def test_a_body_in_gzip_is_inflated_as_far_as_a_body_may_be_long(api: Api, settings: Any) -> None:
    api.queue()

    def post(raw: bytes, encoding: str = "gzip", path: str = "topics/jobs") -> Answer:
        return api.post(path, raw=raw, headers={"content-encoding": encoding})

    written = gzip.compress(json.dumps({"records": [{"data": "x" * 100_000}]}).encode())
    assert post(written)["seqs"]
    assert [len(job["data"]) for job in api.claim()] == [100_000]
    assert post(b"{}", "identity", "topics/jobs/claim").message.startswith("node: it is missing")
    assert (post(b"{}", "br").status, post(b"{}", "gzip, gzip").status) == (415, 415)
    for raw in (b"", b"{}", written[:-4], written + b"x"):
        answer = post(raw)
        assert (answer.status, answer.code) == (400, "invalid_request"), answer
    bomb = gzip.compress(b" " * 70_000_000)
    for path in ("topics/jobs", "topics/jobs/claim"):
        assert (answer := post(bomb, path=path)).code == "payload_too_large", answer
    zaqar = api.client.put("/v1/queues/q/metadata", bomb, headers={"content-encoding": "gzip"})
    assert zaqar.status_code in (400, 404)
