"""Spark Connect: the same code through a server of its own, from a process that has no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from django_leasequeue.models import JobEvent, StoredJob
from tests.engine.helpers import make
from tests.spark.conftest import Source
from tests.spark.helpers import work
from tests.spark.servers import connect_server, environment

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

_CLIENT = """
import json, sys
from pyspark.sql import functions as f
from django_leasequeue import spark
from django_leasequeue.spark import pipeline
from django_leasequeue.spark.layout import Lake

remote, path, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
session = spark.session("connected", remote=remote)
lake = Lake(session, path)
first = pipeline.run(lake, options)
again = pipeline.run(lake, options)
frame = session.range(20).select(f.concat(f.lit("k"), "id").alias("key"), "id")
for _ in range(2):
    sink = frame.write.format("leasequeue").options(**options, queue="back", writeId="once")
    sink.mode("append").save()
gold = lake.read(lake.gold("throughput")).groupBy().sum("enqueued", "completed", "failed").first()
print(json.dumps({
    "class": type(session).__module__,
    "events": [first.events, again.events],
    "days": [first.days, again.days],
    "gold": list(gold),
    "zone": session.conf.get("spark.sql.session.timeZone"),
}))
"""


@pytest.fixture
def remote(tmp_path: Path, subprocess_env: dict[str, str]) -> Iterator[str]:
    env = subprocess_env | environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(settings.BASE_DIR))
    with connect_server(tmp_path, env, "local[1]") as address:
        yield address


def test_the_pipeline_and_the_sink_through_a_server(
    remote: str, source: Source, tmp_path: Path, subprocess_env: dict[str, str]
) -> None:
    work()
    make("back")
    before = JobEvent.objects.count()
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, remote, str(tmp_path / "lake"), json.dumps(source.options)],
        env=subprocess_env, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "class": "pyspark.sql.connect.session", "events": [before, 0], "days": [1, 0], "gold": [10, 8, 1],
        "zone": "UTC",
    }  # fmt: skip
    assert StoredJob.objects.filter(queue__name="back").count() == 20
