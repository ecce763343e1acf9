"""The health port of a worker: its own figures, and those of its database."""

import sys

import pytest
from django.test import Client

from django_leasequeue.metrics.prometheus import worker_page
from tests.metrics.scraping import Samples, samples, value
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.worker.processes import Start, ask
from tests.worker.support import enqueue, results

port = pytest.fixture(free_port)


def scrape(port: int, path: str = "/metrics") -> Samples:
    status, text = ask(port, path)
    assert status == 200, text
    return samples(text)


def outcome(port: int, name: str) -> float:
    return value(scrape(port), "leasequeue_worker_jobs_total", outcome=name) or 0


@pytest.mark.slow
def test_of_one_process(work: str, start: Start, port: int) -> None:
    enqueue({}, {}, {"do": "raise", "give_up": True}, {"do": "wait"})
    worker = start("--health-port", str(port), "--concurrency", "4")
    worker.says("Worker started")
    eventually(lambda: len(results()) == 3, "three have ended")
    eventually(lambda: outcome(port, "completed") == 2 and outcome(port, "failed") == 1, "it counts them")
    found = scrape(port)
    assert value(found, "leasequeue_worker_jobs_total", outcome="claimed") == 4
    assert [value(found, f"leasequeue_worker_{name}") for name in ("held", "running", "healthy")] == [1, 1, 1]
    assert value(found, "leasequeue_worker_database_reached") == 1
    queues = scrape(port, "/metrics/queues")
    assert value(queues, "leasequeue_jobs", queue="work", state="leased") == 1
    assert value(queues, "leasequeue_job_events_total", queue="work", event="completed") == 2
    status, text = ask(port, "/")
    assert (status, '"healthy": true' in text) == (200, True)


@pytest.mark.slow
def test_counts_of_processes_that_ended_stay(work: str, start: Start, port: int) -> None:
    enqueue(*({} for _ in range(20)))
    worker = start("--health-port", str(port), "--processes", "2", "--max-jobs", "5")
    eventually(lambda: len(results()) == 20, "all are done")
    eventually(lambda: outcome(port, "completed") == 20, "and counted")
    status, text = ask(port, "/metrics/queues")
    assert (status, "--processes 1" in text) == (404, True)
    worker.ends()


def test_without_the_library_it_says_so(work: str, monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, _, body = worker_page(lambda: (True, [], {}))("")
    assert (status, body) == (501, b"prometheus_client is not installed: pip install 'django-leasequeue[prometheus]'.")
    answer = client.get("/metrics")
    assert answer.status_code == 501
    assert "pip install 'django-leasequeue[prometheus]'" in answer.json()["error"]["message"]
