"""A client that speaks to the views in this process and holds every answer against the OpenAPI document."""

import json
from collections.abc import Callable
from typing import Any

from django.test import Client

from tests.http import contract

Ask = Callable[..., tuple[int, dict[str, Any]]]


class Answer:
    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.headers = response.headers
        self.content: bytes = response.content
        self.json: dict[str, Any] = json.loads(response.content)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])

    def __getitem__(self, name: str) -> Any:
        return self.json[name]

    def __repr__(self) -> str:
        return f"<{self.status} {self.content[:300]!r}>"


class Api:
    """The door ``/v0``. Every answer is checked: JSON, a code and a sentence in errors, ``performance`` in the rest."""

    def __init__(self, token: str | None = None) -> None:
        self.client = Client()
        self.token = token

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        status: int | None = None,
        **options: Any,
    ) -> Answer:
        headers = {"accept": "application/json", **options.pop("headers", {})}
        if self.token is not None:
            headers.setdefault("authorization", f"Bearer {self.token}")
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        response = self.client.generic(
            method, f"/v0/{path}", content, content_type=options.pop("content_type", "application/json"),
            headers=headers, **options,
        )  # fmt: skip
        answer = Answer(response)
        check(answer)
        contract.check(method, f"/v0/{path}", answer.status, answer.json)
        if status is not None:
            assert answer.status == status, answer
        return answer

    def get(self, path: str, **options: Any) -> Answer:
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.call("POST", path, body, **options)

    def put(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.call("PUT", path, body, **options)

    def delete(self, path: str, **options: Any) -> Answer:
        return self.call("DELETE", path, **options)

    # Short words for what nearly every test does.

    def queue(self, name: str = "jobs", **config: Any) -> None:
        self.put(f"topics/{name}", {"type": "queue", **config}, status=201)

    def log(self, name: str = "events", **config: Any) -> None:
        self.put(f"topics/{name}", {"type": "log", **config}, status=201)

    def write(self, name: str, *data: Any, **body: Any) -> list[int]:
        answer = self.post(f"topics/{name}", {"records": [{"data": item} for item in data], **body})
        assert answer.status in (200, 201), answer
        seqs: list[int] = answer["seqs"]
        return seqs

    def claim(self, name: str = "jobs", node: str = "w1", max: int = 1, **body: Any) -> list[dict[str, Any]]:
        jobs = self.post(f"topics/{name}/claim", {"node": node, "max": max, **body}, status=200)["claimed"]
        return list(jobs)

    def ack(self, name: str, seqs: list[int], node: str = "w1", **body: Any) -> Answer:
        return self.post(f"topics/{name}/ack", {"node": node, "seqs": seqs, **body}, status=200)

    def state(self, name: str = "jobs") -> Answer:
        return self.get(f"topics/{name}", status=200)


def check(answer: Answer) -> None:
    assert answer.headers["content-type"] == "application/json"
    if answer.status < 400:
        assert answer["performance"]["server_total_ms"] > 0
        return
    error = answer["error"]
    assert set(answer.json) == {"error"}
    assert set(error) <= {"code", "message", "detail"}
    assert (error["code"], " " in error["code"]) == (error["code"].lower(), False)
    assert error["message"].endswith((".", "}"))
    assert " " in error["message"]
    if answer.status in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
