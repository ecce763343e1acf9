"""A host's code, as type checkers see it: `scripts/check-types` runs mypy and pyright over it.

Lines with `# wrong` are mistakes, and each of the two has to say so; of all others they say nothing.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Any, assert_type

from django.core.asgi import get_asgi_application
from django.http import HttpRequest

from django_leasequeue import (
    BufferedQueue,
    ClaimedJob,
    Consumer,
    EmbeddedWorker,
    Heartbeat,
    NewJob,
    Queue,
    progress_view,
    tasks,
    with_worker,
)
from django_leasequeue.client import AsyncClient, Client, ClientJob, Record, Worker
from django_leasequeue.exceptions import LeaseLost, LeaseQueueError
from django_leasequeue.models import Job, JobQuerySet
from django_leasequeue.queue.outcomes import Receipt
from django_leasequeue.tasks import (
    ContextNotRestored,
    LeaseQueueContext,
    Limit,
    Workflow,
    WorkflowResult,
    chain,
    chord,
    group,
    task,
)

if sys.version_info >= (3, 12):
    from django.tasks import TaskResult

    DjangoResult = TaskResult[..., Any]
else:
    from django_tasks import TaskResult

    DjangoResult = TaskResult[Any]

images = Queue("images", preset="jobqueue", lease_ms=60_000)


def produce() -> None:
    receipt = images.enqueue({"id": 1}, key="img-1", delay_ms=500)
    assert_type(receipt, Receipt)
    assert_type(images.enqueue_many([NewJob(data={"id": 2}, tag="large"), {"id": 3}]), list[Receipt])
    images.enqueue({"id": 1}, delay="soon")  # wrong
    images.enqueue({"id": 1}, delay_ms="500")  # wrong
    images.enqueu({"id": 1})  # wrong


def consume() -> None:
    jobs = images.claim(5, lease_ms=30_000, tags=["large"])
    assert_type(jobs, list[ClaimedJob])
    for job in jobs:
        assert_type(job.deadline, datetime)
        try:
            with Heartbeat(images, job) as heart:
                assert_type(heart.lost, bool)
            images.ack(job, result={"ok": True})
        except LeaseLost as error:
            lost: LeaseQueueError = error
            print(lost, issubclass(ContextNotRestored, LeaseQueueError))
    images.claim("five")  # wrong
    images.ack("img-1")  # wrong
    images.ack_many(jobs, [{"ok": True} for _ in jobs], result_ttl_ms=60_000)
    images.ack_many(jobs, 5)  # wrong
    print(jobs[0].deadlin)  # wrong


async def produce_and_consume() -> None:
    assert_type(await images.aenqueue({"id": 1}, key="img-1"), Receipt)
    assert_type(await images.aclaim(5), list[ClaimedJob])
    async with BufferedQueue(images) as buffered:
        assert_type(await buffered.aenqueue({"id": 2}), Receipt)
    await images.aclaim("five")  # wrong
    await images.aenqueue({"id": 1}, delay_ms="500")  # wrong


def run(job: ClaimedJob) -> dict[str, Any]:
    return {"id": job.payload["id"]}


consumer = Consumer(images, run, concurrency=4)
Consumer(images, run, concurrency="four")  # wrong


application = with_worker(get_asgi_application(), concurrency=2)
with_worker(None)  # wrong
assert_type(EmbeddedWorker(queues=["mail"]).start(), bool)


def is_mine(request: HttpRequest, result: DjangoResult) -> bool:
    return bool(result.args)


progress_view(is_mine, backend="default")
progress_view(None)  # wrong


@task(max_attempts=5, backoff=[10, 60])
def send_receipt(order: int) -> str:
    return f"receipt {order}"


@task(batch=100, batch_wait=0.5, batch_by="tenant")
def index(batch: tasks.Batch) -> None:
    for number, call in enumerate(batch):
        assert_type(call, tasks.BatchCall)
        batch.ok(number, [call.id, call.attempt, call.lost])
    batch.fail(0, ValueError("no"))
    batch.fail(0, "no")  # wrong


@task(batch=100)
async def aindex(batch: tasks.Batch) -> None: ...


@task(batch=100)  # wrong
def one_by_one(number: int) -> None: ...


def enqueue_calls_of_batches() -> None:
    index.enqueue(1, "any", tenant="a")
    aindex.using(priority=1).enqueue(1)
    assert_type(index.s(1), tasks.Signature[Any])


@task(max_attempt=5)  # wrong
def misspelt(order: int) -> None: ...


def enqueue_tasks() -> None:
    send_receipt.enqueue(3)
    send_receipt.enqueue(order=3)
    send_receipt.enqueue("three")  # wrong
    result = send_receipt.enqueue(3)
    many = send_receipt.enqueue_many([(3,)])
    many.append(result)
    assert_type(many[0].wait(), str)
    django_result: DjangoResult = result
    print(django_result)
    assert_type(result.return_value, str)
    print(result.progress)
    assert_type(result.wait(timeout=5), str)
    assert_type(result.cancel(running=True), bool)
    result.cancel(running="yes")  # wrong
    assert_type(fetch.enqueue("a").return_value, int)
    assert_type(fetch_more.enqueue("a").return_value, int)
    assert_type(with_context.enqueue("a").return_value, int)
    result.wait("five")  # wrong
    with_context.enqueue(3)  # wrong


@task(key="invoice-{order}", unique_for=60, on_conflict="replace")
def make_invoice(order: int) -> str:
    return f"invoices/{order}.pdf"


def key_of_order(order: int) -> str | None:
    return f"order-{order}" if order else None


@task(key="invoice-{order}", unique_until="never")  # wrong
def misspelt_end(order: int) -> None: ...


def enqueue_unique_tasks() -> None:
    assert_type(make_invoice.using(key="invoice-7").enqueue(7).created, bool | None)
    assert_type(make_invoice.using(key=key_of_order, unique_until="start").enqueue(7).return_value, str)
    make_invoice.using(tags={"customer": 7, "region": "eu"}, ignore_result=True).enqueue(7)
    make_invoice.using(tags=["customer"])  # wrong
    make_invoice.using(key=7)  # wrong
    make_invoice.using(on_conflict="forget")  # wrong
    make_invoice.using(unique_for="soon")  # wrong
    images.enqueue({"id": 1}, key="img-1", unique_until="start", on_conflict="reschedule")
    images.enqueue({"id": 1}, key="img-1", on_conflict="forget")  # wrong


@task
async def fetch(url: str) -> int:
    return len(url)


@task(timeout=30, timeout_grace=5, deadline=timedelta(hours=1), schedulable=True)
async def fetch_more(url: str) -> int:
    return len(url)


@task(takes_context=True)
async def with_context(context: LeaseQueueContext, url: str) -> int:
    return len(url)


@task(limit=Limit("customer:{customer}", concurrency=1))
def for_customer(customer: int, *, day: str = "") -> list[str]:
    return [day]


@task
def count(values: list[int]) -> float:
    return float(len(values))


def workflows() -> None:
    assert_type(fetch.s("a"), tasks.Signature[int])
    assert_type(send_receipt.si(3), tasks.Signature[str])
    assert_type(send_receipt.s(), tasks.Signature[str])
    for_customer.using(limit=Limit("api", rate=100, per=10)).enqueue(1, day="monday")
    assert_type(chain(fetch.s("a"), send_receipt.s()).enqueue(), WorkflowResult[str])
    assert_type(chain(fetch.s("a"), send_receipt.s()).enqueue().wait(5), str)
    assert_type(group([fetch.s("a"), fetch.s("b")]).enqueue().wait(), list[int])
    assert_type(group(fetch.s("a"), fetch.s("b")).enqueue().wait(), list[int])
    assert_type((fetch.s("a") | send_receipt.s()).enqueue().wait(), str)
    assert_type(fetch.s("a").using(priority=5).enqueue(), TaskResult[int])
    assert_type(group(fetch.s(url) for url in ("a", "b")).enqueue().status.total, int)
    assert_type(chord([fetch.s("a")], count.s()).enqueue(), WorkflowResult[float])
    assert_type(chord(group([fetch.s("a")]), count.s(), allow_failures=True).enqueue().wait(), float)
    workflow = Workflow(name="report")
    first = workflow.add(fetch.s("a"))
    workflow.add(group([count.s(), count.s()]), after=[first])
    assert_type(workflow.enqueue().wait(), dict[str, Any])
    assert_type(tasks.get_workflow_result("a").wait(), Any)
    assert_type((tasks.pause(fetch), tasks.resume("shop.tasks.fetch")), tuple[bool, bool])
    tasks.pause(3)  # wrong
    send_receipt.si("three")  # wrong
    for_customer.si(1, day=5)  # wrong
    chain(fetch.s("a"), send_receipt)  # wrong
    group([fetch])  # wrong
    chord([fetch.s("a")])  # wrong
    Limit("api", rate="100", per=10)  # wrong
    task(limit="customer")  # wrong
    workflow.add(count.s(), after=fetch.s("a"))  # wrong


async def wait_for_workflows_and_tasks() -> None:
    workflow = await group([fetch.s("a")]).aenqueue()
    assert_type(await workflow.await_all(5), list[int])
    assert_type((await workflow.astatus()).label, str)
    result = await fetch.aenqueue("a")
    assert_type(await result.await_result(), int)
    assert_type(await result.acancel(), bool)


def jobs_as_models() -> None:
    assert_type(Job.objects.dead().for_task(fetch).in_queue("images"), JobQuerySet)
    assert_type(Job.objects.get(pk=7), Job)
    assert_type(Job.objects.failed().get().retry(), bool)
    Job.objects.in_queue(7)  # wrong


def outside_of_django(client: Client) -> None:
    assert_type(client.claim("images", "here", 5), list[ClientJob])
    client.produce("images", [Record({"id": 1})])
    Worker(client, "images", print, concurrency=4)
    client.claim("images", 5)  # wrong


async def outside_of_django_in_coroutines(client: AsyncClient) -> None:
    assert_type(await client.claim("images", "here", 5), list[ClientJob])
    await client.claim("images", 5)  # wrong
