"""``docs/reference/http-topics.md``: its examples are run in order, and it names everything that there is."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.http.contract import Reader, document
from tests.http.servers import EventSource, Server, serving
from tests.support.documents import DOCS, Block, blocks
from tests.support.environment import child_environment

PAGE = "reference/http-topics.md"

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]


@pytest.fixture(scope="module")
def servers(test_database_url: str) -> Iterator[list[Server]]:
    """A server for this page alone: what it lists is what the page made."""
    yield from serving(child_environment(test_database_url), 1)


@pytest.mark.slow
def test_the_examples(server: Server) -> None:
    reader = Reader()
    found = [block for block in blocks(PAGE) if block.language in ("http", "json", "sse")]
    pairs = list(zip(found[::2], found[1::2], strict=True))
    shown = {(request.text.split(" ", 1)[0], blind(request)) for request, _ in pairs}
    assert shown == {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}
    for request, answer in pairs:
        assert request.language == "http", request.line
        head, _, rest = request.text.partition("\n")
        method, path = head.split(" ")
        path = reader.address(path).removeprefix("/v0/")
        place = f"line {answer.line}"
        if answer.language == "sse":
            assert rest == "Accept: text/event-stream\n"
            stream(server, reader, path, answer)
            continue
        body = reader.translate(json.loads(rest)) if rest else None
        status, content = server.call(method, path, body)
        assert status == int(answer.word), (place, content)
        reader.compare(json.loads(answer.text), content, place)


def blind(request: Block) -> str:
    """The address of a request, as the OpenAPI document has it."""
    path = request.text.split("\n", 1)[0].split(" ")[1].split("?")[0].split("/")
    names = {"topics": "{topic}", "watch": "{wid}", "jobs": "{seq}", "steps": "{name}", "events": "{event}"}
    for place, word in enumerate(path[:-1]):
        if place % 2 == 0:
            path[place + 1] = names.get(word, path[place + 1])
    return "/".join(path)


def stream(server: Server, reader: Reader, path: str, block: Block) -> None:
    events = [text for text in block.text.strip().split("\n\n") if "event: " in text]
    with EventSource(server, path) as source:
        assert source.status == 200
        for text in events:
            lines = dict(line.split(": ", 1) for line in text.split("\n"))
            event = source.event()
            assert event.name == lines["event"]
            assert event.id is not None
            reader.compare(json.loads(lines["data"]), dict(event), f"line {block.line}")
        assert (source.retry, source.comments[0]) == (2000, "hb")


def test_every_endpoint_field_and_code_is_named() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    missing = []
    for address, methods in document()["paths"].items():
        for method, operation in methods.items():
            if f"### {method.upper()} {address}\n" not in text:
                missing.append(f"{method.upper()} {address}")
            missing += [
                code
                for status, answer in operation["responses"].items()
                for code in re.findall(r"`[a-z_]+`", answer["description"].split(". ")[0])
                if status >= "400" and code not in text
            ]
            missing += [
                item["name"]
                for item in operation.get("parameters", [])
                if f"`{item['name']}" not in text and f"?{item['name']}=" not in text and item["in"] != "path"
            ]
    for name, shape in document()["components"]["schemas"].items():
        missing += [
            f"{name}.{field}"
            for field in shape.get("properties", {})
            if not re.search(rf"[`.\"]{re.escape(field)}[`\"]", text)
        ]
    assert missing == []
