"""Requests made up from the OpenAPI document, good and bad ones: no answer is a 5xx, none is undocumented."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis import Case, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from django_leasequeue.client import Client, ClientJob, Record
from tests.http.contract import document
from tests.http.servers import Server, serving
from tests.support.environment import child_environment

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("emptied")]

CHECKS = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_headers_conformance, checks.response_schema_conformance,
]  # fmt: skip
# A copy: it is changed while it is read.
SCHEMA = openapi.from_dict(deepcopy(document()))
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
#: Characters of an address.
MAX_ADDRESS = 16_000
QUEUE, LOG = "made-up-jobs", "made-up-events"
#: Jobs of the queue under leases.
HELD: list[ClientJob] = []


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
    yield address
    # Shown when the test fails.
    print(server.read_log()[-4_000:])


def cases(label: str, mode: GenerationMode, base: str) -> st.SearchStrategy[Case]:
    """Requests of an operation: half of them about topics that are there."""
    operation = OPERATIONS[label]
    made = [operation.as_strategy(mode)]
    if "{topic}" in label:
        made += [operation.as_strategy(mode, path_parameters={"topic": name}) for name in (QUEUE, LOG)]
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


def make_good(case: Case) -> None:
    """Make a good request as good as the document cannot say it: no made-up key, a token for each job, topics there."""
    case.headers.pop("authorization", None)
    if case.path.endswith(("/steps", "/steps/{name}", "/suspend")):
        case.path_parameters |= {"topic": QUEUE, "seq": HELD[0].seq}
        sent = case.query if case.method == "GET" else case.body
        sent |= {"node": "w1", "lease_id": HELD[0].lease_id}
    if case.path.endswith("/suspend"):
        case.body = {"node": "w1", "lease_id": HELD[0].lease_id, "name": "nap", "sleep_ms": 5}
    if not isinstance(case.body, dict):
        return
    if case.path.endswith(("/ack", "/nack", "/extend")):
        # JSON Schema takes 7.0 for an integer; the API refuses what a float may have rounded.
        case.body["seqs"] = [int(seq) for seq in case.body["seqs"]]
        if case.body.get("lease_ids") is not None:
            count = min(len(case.body["seqs"]), len(case.body["lease_ids"]))
            case.body["seqs"], case.body["lease_ids"] = case.body["seqs"][:count], case.body["lease_ids"][:count]
    if "topics" in case.body:
        case.body["topics"] = dict(zip((QUEUE, LOG), case.body["topics"].values(), strict=False))


def ask(case: Case, base: str, session: requests.Session) -> int:
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
            assert response.content
            case.validate_response(response, checks=CHECKS)
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
            statuses.add(ask(case, base, session))

        run()
    # Good requests reach what they are about.
    assert mode is GenerationMode.NEGATIVE or min(statuses) < 300, statuses


def test_every_operation_is_asked() -> None:
    assert len(OPERATIONS) == sum(len(methods) for methods in document()["paths"].values())
