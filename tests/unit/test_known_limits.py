"""The page of known limits has the numbers of the code."""

from django_leasequeue.conf.options import Settings
from django_leasequeue.engine import limits
from django_leasequeue.engine.flow import declared, workflows
from django_leasequeue.engine.jobs import steps
from django_leasequeue.engine.leases import claim
from django_leasequeue.queue.enqueue import MAX_MANY
from django_leasequeue.worker import fetcher, queue_names
from tests.support.documents import DOCS


def test_its_table_says_what_is_enforced() -> None:
    table = (DOCS / "reference/known-limits.md").read_text().partition("## Rates")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")][2:]
    said = {what: most for what, most, *_ in lines}
    enforced = {
        "payload of a job": [Settings().MAX_PAYLOAD_BYTES],
        "result of a job": [Settings().MAX_RESULT_BYTES],
        "jobs in one `enqueue_many`": [MAX_MANY],
        "jobs in one claim, ack or nack": [limits.MAX_BATCH],
        "queues in one claim": [claim.MAX_QUEUES],
        "queues that a worker of all queues takes": [queue_names.MAX_QUEUES],
        "queues whose notifications wake a worker": [fetcher.MAX_WATCHED],
        "steps of a job": [limits.MAX_STEPS],
        "nodes and edges of a workflow": [workflows.MAX_NODES, workflows.MAX_EDGES],
        "jobs that one event wakes at once": [steps.MAX_WOKEN],
        "concurrency of a limit, and its starts a second": [declared.MAX_CONCURRENCY, declared.MAX_RATE],
        "length of the name of a queue or a limit": [limits.MAX_QUEUE_BYTES],
        "length of a tag": [limits.MAX_TAG_BYTES],
        "length of a unique key": [limits.MAX_UNIQUE_BYTES],
        "`delay` of a retry": [limits.MAX_DELAY_MS // 1_000],
    }
    assert said.keys() == enforced.keys()
    wrong = [what for what, numbers in enforced.items() if not all(f"{number:,}" in said[what] for number in numbers)]
    assert wrong == []
    assert declared.MAX_NAME_BYTES == limits.MAX_QUEUE_BYTES
