"""The pages about the Python door: their examples run as they stand there, and what they say comes true."""

import ast
import inspect
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from django_leasequeue import Consumer
from django_leasequeue.exceptions import JobNotFound
from tests.support.documents import DOCS, blocks
from tests.support.threads import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("native", "closed_pools")]


async def run(page: str) -> dict[str, Any]:
    """Run the Python of a page in order, with one set of names. Blocks with ``await`` run in the test's event loop."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if (block.language, block.word) == ("python", ""):
            source = "\n" * (block.line - 1) + block.text
            code = compile(source, str(DOCS / page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                await types.FunctionType(code, names)()
            else:
                await in_thread(partial(exec, code, names))
    return names


@pytest.fixture(autouse=True)
def _consumers_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ExitStack() as stack:
        start = Consumer._start

        def started(self: Consumer, serializer: Any) -> None:
            start(self, serializer)
            stack.callback(self.stop, 1)

        monkeypatch.setattr(Consumer, "_start", started)
        yield


async def test_request_response() -> None:
    names = await run("how-to/request-response.md")
    assert names["answer"] == {"url": "/thumbnails/photo-1-200.png"}
    assert [answer["url"].rpartition("-")[2] for answer in names["answers"]] == ["100.png", "200.png", "300.png"]
    assert (names["first"], names["second"]) == ("later", {"url": "/thumbnails/photo-2-200.png"})


async def test_deduplication() -> None:
    names = await run("how-to/deduplication.md")
    assert names["first"].status == "queued"
    assert (names["again"].status, names["again"].state) == ("duplicate", "queued")
    assert (names["done"].status, names["done"].result) == ("completed", {"pdf": "42.pdf"})
    assert names["known"] is True
    assert names["made"].status == "queued"
    assert [receipt.status for receipt in names["receipts"]] == ["completed", "duplicate", "queued", "duplicate"]


async def test_cancel() -> None:
    names = await run("how-to/cancel.md")
    assert (names["answer"], names["fresh"].status, names["stopped"]) == ("cancelled", "queued", "cancelled")
    assert await names["exports"].aget_status("export-7") is None


async def test_progress() -> None:
    names = await run("how-to/progress.md")
    assert names["status"].progress == {"done": 500, "of": 500}
    assert names["halfway"].progress == names["before"] == {"done": 10, "of": 100}
    assert (await names["imports"].aget_status("import-3")).state == "completed"


async def test_batching() -> None:
    names = await run("how-to/batching.md")
    assert (len(names["receipts"]), len(names["jobs"]), len(names["settled"].ok)) == (1_000, 200, 150)
    assert (len(names["given_back"].ok), names["statuses"]) == (50, ["queued"] * 100)
    refused, added = names["answers"]
    assert isinstance(refused, JobNotFound)
    assert added.status == "queued"


async def test_serializers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    codecs = types.ModuleType("myproject.codecs")
    codecs.encode, codecs.decode = str.encode, bytes.decode  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "myproject", types.ModuleType("myproject"))
    monkeypatch.setitem(sys.modules, "myproject.codecs", codecs)
    declared, typed = (block for block in blocks("how-to/serializers.md") if block.word == "settings")
    exec(typed.text, {})
    told: dict[str, Any] = {}
    exec(declared.text, told)
    settings.LEASEQUEUE = {**told["LEASEQUEUE"], "ASYNC": "native"}
    names = await run("how-to/serializers.md")
    assert (names["first"].payload, names["second"].payload) == ({"name": "a.png"}, b"\x89PNG...")
    assert names["frame"].payload == {"frame": b"\x00\x01", 7: "a number as a key"}
    assert (names["job"].payload, names["size"]) == ({1, 2, 3}, 3_000_000)
    from django_leasequeue.queue import serializers

    assert serializers.find("text").loads is bytes.decode


async def test_move_from_jqueue() -> None:
    names = await run("how-to/move-from-jqueue.md")
    assert names["sent"] == [b'{"to": "bob@example.com"}', b'{"to": "alice@example.com"}']
    assert names["state"].jobs == ()


async def test_move_from_jobqueue() -> None:
    names = await run("how-to/move-from-jobqueue.md")
    assert names["result"] == {"thumbnail": "img-1.png", "attempt": 1}
    assert (names["again"].status, names["again"].result) == ("completed", names["result"])
    assert (names["runs"], names["failed"]) == (3, [("img-2", "no image")])


async def test_delivery_contract() -> None:
    names = await run("explanation/delivery-contract.md")
    assert (await names["fees"].aget_status("fee-42")).state == "queued"
    assert await names["ledger"].aclaim() == []
