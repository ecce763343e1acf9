"""Many clients at once, over real sockets."""

import http.client
import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connections
from django.test import override_settings

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


class Http:
    def __init__(self, url: str, project: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self.headers = {"Client-ID": str(uuid.uuid4()), "X-Project-Id": project, "Accept": "application/json"}

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        self.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None


def test_twenty_claimers_lose_nothing_and_share_nothing(live_server: Any) -> None:
    total, claimers = 400, 20
    with override_settings(ROOT_URLCONF="tests.http.zaqar.conftest", LEASEQUEUE={"API": {"ACCESS": "open"}}):
        producer = Http(live_server.url, "load")
        assert producer("PUT", "/v1/queues/shared")[0] == 201
        for start in range(0, total, 20):
            entries = [{"ttl": 300, "body": number} for number in range(start, start + 20)]
            assert producer("POST", "/v1/queues/shared/messages", entries)[0] == 201

        def work(_: int) -> list[int]:
            client, seen = Http(live_server.url, "load"), []
            while True:
                status, messages = client("POST", "/v1/queues/shared/claims?limit=7", {"ttl": 300, "grace": 60})
                if status == 204:
                    client.connection.close()
                    return seen
                assert status == 201, messages
                for message in messages:
                    seen.append(message["body"])
                    assert client("DELETE", message["href"])[0] == 204

        with ThreadPoolExecutor(claimers) as pool:
            counted = Counter(number for seen in pool.map(work, range(claimers)) for number in seen)
        assert counted == Counter(range(total))
        assert producer("GET", "/v1/queues/shared/stats")[1] == {"messages": {"free": 0, "claimed": 0, "total": 0}}
        producer.connection.close()
    connections.close_all()
