"""Requests made up from the OpenAPI documents, good and bad ones: no good one is refused, no answer is undocumented."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from uuid import uuid4

import pytest
import requests
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis import Case, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from django_leasequeue.client import Client, ClientJob, Record
from tests.http.contract import SNAPSHOTS, document
from tests.http.servers import Server, serving
from tests.support.environment import child_environment

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]

CHECKS = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_headers_conformance, checks.response_schema_conformance,
]  # fmt: skip
#: What a good request may get: it may be about something that is not there, or not in that state.
ACCEPTED = {200, 201, 204, 404, 409}
#: Nothing of theirs can be made over HTTP.
ABSENT = {"GET /v0/workflows/{workflow}"}
#: Texts that a pattern cannot describe: a cursor is what a page gave, a moment a time or how long ago.
openapi.format("cursor", st.just(""))
openapi.format("moment", st.sampled_from(["", "2h", "90min", "2026-11-20T18:30", "2026-11-20T18:30:00.5+02:00"]))
# Copies: they are changed while they are read.
SCHEMAS = [openapi.from_dict(deepcopy(document(door))) for door in SNAPSHOTS]
OPERATIONS = {found.ok().label: found.ok() for schema in SCHEMAS for found in schema.get_all_operations()}
#: Characters of an address.
MAX_ADDRESS = 16_000
QUEUE, LOG, DOOMED = "made-up-jobs", "made-up-events", "made-up-doomed"
#: Jobs of the queue under leases.
HELD: list[ClientJob] = []
#: The number of a dead letter.
DEAD: list[int] = []
#: The ids of a message and of a claim of it.
ITEMS: dict[str, str] = {}


@pytest.fixture(scope="module")
def servers(test_database_url: str) -> Iterator[list[Server]]:
    yield from serving(child_environment(test_database_url), 1)


@pytest.fixture
def base(server: Server) -> Iterator[str]:
    """Where the server is; a queue and a log are there, with some records."""
    address = f"http://127.0.0.1:{server.port}"
    with Client(f"{address}/v0") as client:
        for name, kind in ((QUEUE, "queue"), (LOG, "log")):
            client.delete_topic(name)
            client.put_topic(name, type=kind)
            client.produce(name, [Record({"n": number}, tag=f"t{number}") for number in range(20)])
        HELD[:] = client.claim(QUEUE, "w1", 5)
        client.put_topic(DOOMED, type="queue", max_deliveries=1, dead_letter=f"{DOOMED}-dead")
        client.produce(DOOMED, [Record(1)])
        client.nack(DOOMED, "w1", client.claim(DOOMED, "w1"))
        client.claim(DOOMED, "w1")
        letters = requests.get(f"{address}/v0/dead-letters", timeout=120).json()["dead_letters"]
        DEAD[:] = [letter["seq"] for letter in letters]
    zaqar, headers = f"{address}/v1/queues/{QUEUE}", {"client-id": str(uuid4())}
    for name, body in (("messages", [{"ttl": 300, "body": 1}]), ("claims", {"ttl": 300, "grace": 60})):
        made = requests.post(f"{zaqar}/{name}", json=body, headers=headers, timeout=120)
        assert made.status_code == 201
        ITEMS[name] = made.headers["location"].partition("=")[2] or made.headers["location"].rpartition("/")[2]
    yield address
    # Shown when the test fails.
    print(server.read_log()[-4_000:])


def cases(label: str, mode: GenerationMode, base: str) -> st.SearchStrategy[Case]:
    """Requests of an operation: half of them about topics that are there."""
    operation = OPERATIONS[label]
    made = [operation.as_strategy(mode)]
    if "{topic}" in label:
        made += [operation.as_strategy(mode, path_parameters={"topic": name}) for name in (QUEUE, LOG)]
    elif "{queue}" in label:
        items = {name: ITEMS[f"{name}s"] for name in ("message", "claim") if f"{{{name}}}" in label}
        made.append(operation.as_strategy(mode, path_parameters={"queue": QUEUE, **items}))
    elif "/dead-letters/{seq}" in label:
        made.append(operation.as_strategy(mode, path_parameters={"seq": DEAD[0]}))
    elif "{wid}" in label:
        watch = requests.post(f"{base}/v0/watch", json={"topics": {QUEUE: 0, LOG: 0}}, timeout=120).json()
        made.append(operation.as_strategy(mode, path_parameters={"wid": watch["wid"]}))
    return st.one_of(made)


def without_waiting(body: Any) -> None:
    """Make long-polls and coalescing windows short: their length is not the matter here."""
    for name in ("wait_ms", "claim_jitter_ms"):
        if isinstance(body, dict) and isinstance(body.get(name), int):
            body[name] = min(body[name], 5)
    if isinstance(body, dict):
        without_waiting(body.get("config"))


def without_nul(value: Any) -> Any:
    """Return JSON without U+0000, which no schema can refuse in any text of any JSON."""
    if isinstance(value, dict):
        return {name.replace("\0", ""): without_nul(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_nul(inner) for inner in value]
    return value.replace("\0", "") if isinstance(value, str) else value


def make_good(case: Case) -> None:
    """Make a good request as good as the document cannot say it: no made-up key, a token for each job, topics there."""
    case.headers.pop("authorization", None)
    case.headers.pop("X-Project-Id", None)
    case.query.pop("token", None)
    if case.query.get("tags"):
        case.query["tags"] = case.query["tags"][:1]  # each name once
    if case.query.get("until"):
        case.query.pop("since", None)  # which must not be later
    if case.path.endswith(("/steps", "/steps/{name}", "/suspend")):
        case.path_parameters |= {"topic": QUEUE, "seq": HELD[0].seq}
        sent = case.query if case.method == "GET" else case.body
        sent |= {"node": "w1", "lease_id": HELD[0].lease_id}
    if case.path.endswith("/suspend"):
        case.body = {"node": "w1", "lease_id": HELD[0].lease_id, "name": "nap", "sleep_ms": 5}
    case.body = without_nul(case.body)
    if not isinstance(case.body, dict):
        return
    if case.body.get("dead_letter") == (case.path_parameters or {}).get("topic"):
        case.body.pop("dead_letter", None)  # another topic than itself
    each = [name for name in ("seqs", "lease_ids", "results") if isinstance(case.body.get(name), list)]
    for name in each:  # one for each
        case.body[name] = case.body[name][: min(len(case.body[other]) for other in each)]
    if "topics" in case.body:
        case.body["topics"] = dict(zip((QUEUE, LOG), case.body["topics"].values(), strict=False))


def ask(case: Case, base: str, session: requests.Session, *, good: bool) -> int:
    """Make the request and check the answer, of a stream only its beginning; return the status."""
    without_waiting(case.body)
    # A name of another host Django refuses by itself.
    case.headers.pop("host", None)
    parts = case.as_transport_kwargs(base_url=base)
    # What is longer the server refuses by itself, before any application hears of it.
    assume(len(parts["url"]) < MAX_ADDRESS)
    with session.request(**parts, stream=True, timeout=120) as response:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            assert response.status_code == 200
            assert next(response.iter_content(None)).startswith(b"retry: 2000\n\n: hb\n\n")
        else:
            assert response.content or response.status_code in (201, 204) or case.method == "HEAD"
            case.validate_response(response, checks=CHECKS)
            assert not good or response.status_code in ACCEPTED, (case.as_curl_command(), response.text)
        return response.status_code


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
@pytest.mark.parametrize("label", list(OPERATIONS))
def test_every_answer_is_documented(base: str, label: str, mode: GenerationMode) -> None:
    statuses: set[int] = set()
    with requests.Session() as session:

        @settings(
            max_examples=25, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=cases(label, mode, base))
        def run(case: Case) -> None:
            if mode is GenerationMode.POSITIVE:
                make_good(case)
            statuses.add(ask(case, base, session, good=mode is GenerationMode.POSITIVE))

        run()
    # Good requests reach what they are about.
    assert mode is GenerationMode.NEGATIVE or min(statuses) < 300 or label in ABSENT, statuses
