"""``docs/reference/http-zaqar.md``: its examples are run in order, and it names everything that there is."""

import json
import re
from datetime import UTC, datetime
from typing import Any

from django_leasequeue.engine.clock import Clock, hold
from tests.http.contract import Reader
from tests.http.zaqar.conftest import Zaqar, described
from tests.support.documents import DOCS, Block, blocks

PAGE = "reference/http-zaqar.md"
CLIENT = "3381af92-2b9e-11e3-b191-71861300734c"
#: Of the page: the form of ids.
ID = re.compile(r"\b[abc]0{20}[0-9]{3}\b")
ANY_ID = "[0-9a-f]{24}"
#: What the examples leave out.
UNSHOWN = {("GET", "/v1")}


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


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), address.rstrip("/")): operation
        for address, methods in described()["paths"].items()
        for method, operation in methods.items()
    }


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
    shown = set()
    for request, _ in pairs():
        method, address = request.text.split("\n", 1)[0].split(" ")
        parts = address.split("?")[0].split("/")
        for number, name in ((3, "{queue}"), (5, f"{{{parts[4].rstrip('s')}}}" if len(parts) > 4 else "")):
            if len(parts) > number:
                parts[number] = name
        shown.add((method, "/".join(parts)))
    assert shown >= set(operations()) - UNSHOWN


def test_every_endpoint_parameter_and_code_is_named() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    headings = {line.removeprefix("### ").rstrip("/") for line in text.splitlines() if line.startswith("### ")}
    missing = []
    for (method, address), operation in operations().items():
        if f"{method} {address}" not in headings:
            missing.append(f"{method} {address}")
        missing += [status for status in operation["responses"] if status >= "400" and f"| {status} |" not in text]
        missing += [
            item["name"]
            for item in operation.get("parameters", [])
            if item["in"] in ("query", "header") and item["name"] != "format" and f"`{item['name']}`" not in text
        ]
    assert missing == []
