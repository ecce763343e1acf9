"""The door describes itself in OpenAPI and in ``docs/reference/http-zaqar.md``, whose examples are run in order."""

import json
import re
from datetime import UTC, datetime
from typing import Any

from django.test import override_settings

from django_leasequeue.engine.clock import Clock, hold
from tests.http.contract import ZAQAR, Reader, made, operations, template_of, unnamed
from tests.http.zaqar.conftest import Zaqar
from tests.support.documents import DOCS, Block, blocks

LIMITS = {
    "MAX_QUEUES_PER_PAGE": 7, "MAX_MESSAGES_PER_PAGE": 3, "MAX_MESSAGES_PER_CLAIM": 2, "DEFAULT_PAGE": 5,
    "MAX_QUEUE_NAME_BYTES": 6, "MAX_METADATA_SIZE": 70, "MAX_MESSAGES_SIZE": 300, "MIN_MESSAGE_TTL": 10,
    "MAX_MESSAGE_TTL": 90, "MIN_CLAIM_TTL": 20, "MAX_CLAIM_TTL": 80, "MIN_CLAIM_GRACE": 30, "MAX_CLAIM_GRACE": 70,
}  # fmt: skip


def test_the_limits_of_the_settings_are_enforced(zaqar: Zaqar, queue: str) -> None:
    with override_settings(LEASEQUEUE={"API": {"ACCESS": "open", "ZAQAR": LIMITS}}):
        assert _status(zaqar, queue, 3, ttl=10) == _status(zaqar, queue, 1, ttl=90) == 201
        assert {_status(zaqar, queue, *bad) for bad in ((4, 10), (1, 9), (1, 91))} == {400}
        assert _status(zaqar, queue, 1, ttl=10, body="x" * 300) == 400
        assert zaqar("PUT", "/v1/queues/longest").status_code == 400
        assert zaqar("PUT", f"/v1/queues/{queue}/metadata", {"a": "x" * 70}).status_code == 400
        for claim in ((2, 20, 30), (1, 80, 70)):
            assert zaqar.claim(queue, *claim).status_code == 201
        for claim in ((3, 20, 30), (1, 19, 30), (1, 81, 30), (1, 20, 29), (1, 20, 71)):
            assert zaqar.claim(queue, *claim).status_code == 400
        assert zaqar("GET", "/v1/queues?limit=7").status_code == 200
        assert zaqar("GET", "/v1/queues?limit=8").status_code == 400


def test_the_limits_of_the_settings_are_described() -> None:
    with override_settings(LEASEQUEUE={"API": {"ACCESS": "open", "ZAQAR": LIMITS}}):
        paths = made(ZAQAR)["paths"]

    def body(address: str, method: str) -> Any:
        return paths[address][method]["requestBody"]["content"]["application/json"]["schema"]

    def limit(address: str, method: str) -> Any:
        (found,) = [one["schema"] for one in paths[address][method]["parameters"] if one["name"] == "limit"]
        return found["maximum"], found["default"]

    def seconds(low: int, high: int) -> dict[str, Any]:
        return {"type": "integer", "minimum": low, "maximum": high}

    messages, claims = "/v1/queues/{queue}/messages/", "/v1/queues/{queue}/claims/"
    posted = body(messages, "post")
    assert posted["maxItems"] == 3
    assert posted["items"]["properties"]["ttl"] == seconds(10, 90)
    for address, method in ((claims, "post"), (f"{claims}{{claim}}/", "patch")):
        assert body(address, method)["properties"] == {"ttl": seconds(20, 80), "grace": seconds(30, 70)}
    assert limit(messages, "get") == (3, 3)
    assert limit(claims, "post") == (2, 2)
    assert limit("/v1/queues/", "get") == (7, 5)
    assert "at most 300 characters" in paths[messages]["post"]["description"]
    assert "at most 70 characters" in paths["/v1/queues/{queue}/metadata/"]["put"]["description"]
    assert "at most 6 characters" in paths["/v1/queues/{queue}/"]["put"]["description"]


def _status(zaqar: Zaqar, queue: str, count: int, ttl: int, body: Any = 1) -> int:
    return int(zaqar("POST", f"/v1/queues/{queue}/messages", [{"ttl": ttl, "body": body}] * count).status_code)


PAGE = "reference/http-zaqar.md"
CLIENT = "3381af92-2b9e-11e3-b191-71861300734c"
#: Of the page: the form of ids.
ID = re.compile(r"\b[abc]0{20}[0-9]{3}\b")
ANY_ID = "[0-9a-f]{24}"
#: What the examples leave out.
UNSHOWN = {("GET", "/v1/")}


class IdReader(Reader):
    """What differs from run to run are ids, which stand within texts."""

    def translate(self, text: str) -> str:
        return ID.sub(lambda found: str(self.known[found[0]]), text)

    def compare_item(self, written: Any, found: Any, place: str) -> None:
        if not isinstance(written, str):
            assert written == found, place
            return
        names = ID.findall(written)
        pattern = f"({ANY_ID})".join(re.escape(part) for part in ID.split(written))
        match = re.fullmatch(pattern, found)
        assert match, (place, written, found)
        for name, value in zip(names, match.groups(), strict=True):
            self.learn(name, value)


def pairs() -> list[tuple[Block, Block]]:
    found = [block for block in blocks(PAGE) if block.language == "http"]
    return list(zip(found[::2], found[1::2], strict=True))


def test_the_examples() -> None:
    reader, zaqar = IdReader(), Zaqar("tenant-1", CLIENT)
    with hold(Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))):
        for request, answer in pairs():
            place = f"line {answer.line}"
            head, _, rest = request.text.partition("\n")
            method, address = reader.translate(head).split(" ")
            found = zaqar(method, address, raw=reader.translate(rest))
            assert found.status_code == int(answer.word), (place, found.content)
            headers, _, body = answer.text.partition("\n\n")
            for line in headers.splitlines():
                name, value = line.split(": ")
                reader.compare(value, found[name], f"{place}, {name}")
            if body:
                reader.compare(json.loads(body), found.json(), place)
            else:
                assert found.content == b"", place


def test_every_operation_is_shown() -> None:
    heads = [request.text.split("\n", 1)[0].split(" ") for request, _ in pairs()]
    shown = {(method, template_of(address.partition("?")[0] + "/", ZAQAR)) for method, address in heads}
    assert shown >= set(operations(ZAQAR)) - UNSHOWN


def test_every_endpoint_parameter_and_code_is_named() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    statuses = {status for operation in operations(ZAQAR).values() for status in operation["responses"]}
    missing = unnamed(ZAQAR, text)
    missing += [status for status in statuses if status >= "400" and f"| {status} |" not in text]
    assert missing == []
