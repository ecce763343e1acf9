"""The files for Grafana, Prometheus and KEDA name only what there is, and their queries run."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.test import Client
from prometheus_client import Metric

from django_leasequeue import engine
from django_leasequeue.metrics.figures import look_at
from django_leasequeue.metrics.prometheus import EVENTS, OUTCOMES, STATES, families, worker_families, worker_page
from tests.engine.helpers import run
from tests.metrics.scraping import Samples, samples, value
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.worker.processes import Start, ask
from tests.worker.support import enqueue, results

EXAMPLES = Path(settings.BASE_DIR) / "docs/examples/monitoring"
#: Words of PromQL in the queries.
FUNCTIONS = {
    "offset",
    *("and", "or", "unless", "by", "sum", "max", "rate", "increase", "histogram_quantile"),
    *("project", "queue", "state", "event", "outcome", "instance", "database", "consumer", "kind", "duty", "le"),
}
#: The values that a label can have.
VALUES = {
    "state": {*STATES, "ready", "delayed", "leased", "dead", "record", "used", "idle", "waiting"},
    "event": set(EVENTS),
    "outcome": set(OUTCOMES),
}
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}


def queries() -> Iterator[str]:
    for group in yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.fixture
def known(work: str) -> dict[str, set[str]]:
    found: list[Metric] = [*families(look_at("default")), *worker_families(True, [{}], {})]
    labels = {
        family.name: {label for sample in family.samples for label in sample.labels} or set(family._labelnames)
        if hasattr(family, "_labelnames")
        else set()
        for family in found
    }
    return {family.name + suffix: labels[family.name] for family in found for suffix in SUFFIXES[family.type]}


def test_every_figure_and_label_is_there_and_rules_are_complete(known: dict[str, set[str]]) -> None:
    asked = list(queries())
    assert len(asked) > 30
    for query in asked:
        for name, selector in re.findall(r"(leasequeue_\w+)(?:\{([^}]*)\})?", query):
            assert name in known, f"{name}, in {query}"
            for label, chosen in re.findall(r'(\w+)=~?"([^"]*)"', selector or ""):
                assert label in known[name], f"{label} of {name}"
                if not chosen.startswith("$"):
                    assert set(chosen.split("|")) <= VALUES[label], f"{chosen} of {label}, in {query}"
        plain = re.sub(r'"[^"]*"|\[[^\]]*\]|leasequeue_\w+|\d\w*', "", query)
        assert set(re.findall(r"[a-z_]+", re.sub(r"\{[^}]*\}", "", plain))) <= FUNCTIONS, query
    for group in yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"]["summary"]


def test_every_figure_is_on_the_dashboard_and_in_the_page_of_monitoring(known: dict[str, set[str]]) -> None:
    shown = (EXAMPLES / "dashboard.json").read_text() + (EXAMPLES / "alerts.yml").read_text()
    assert {name for name in known if not name.endswith(("_sum", "_count")) and name not in shown} == set()
    text = (Path(settings.BASE_DIR) / "docs/how-to/monitoring.md").read_text()
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known}
    assert {name for name in bases if f"`{name}`" not in text} == set()


def keda(name: str = "mail") -> int:
    sample: dict[str, Any] = yaml.safe_load((EXAMPLES / "keda.yml").read_text())
    (trigger,) = sample["spec"]["triggers"]
    assert trigger["type"] == "postgresql"
    ((count,),) = run(trigger["metadata"]["query"])
    return int(count)


def test_the_query_of_keda_counts_what_workers_are_wanted_for(test_dsn: str) -> None:
    assert keda() == 0
    for name in ("mail", "other"):
        engine.run(engine.create(name, preset="django"))
    engine.run(engine.enqueue("mail", [engine.NewJob() for _ in range(7)]))
    engine.run(engine.enqueue("mail", [engine.NewJob(delay_ms=3_600_000)]))
    engine.run(engine.enqueue("other", [engine.NewJob()]))
    assert keda() == 7
    engine.run(engine.claim(["mail"], "node", 3))
    assert keda() == 7
    engine.run(engine.pause("mail"))
    assert keda() == 0


# The health port of a worker: its own figures, and those of its database


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
    status, _, body = worker_page(lambda: (True, {}), {})("")
    assert (status, body) == (501, b"prometheus_client is not installed: pip install 'django-leasequeue[prometheus]'.")
    answer = client.get("/metrics")
    assert answer.status_code == 501
    assert "pip install 'django-leasequeue[prometheus]'" in answer.json()["error"]["message"]
