"""Spark Connect: the same code through a server of its own, from a process that has no Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from django.conf import settings

from django_leasequeue.models import Job, JobEvent
from django_leasequeue.spark.session import java
from tests.engine.helpers import make
from tests.spark.conftest import Source
from tests.spark.helpers import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def remote(tmp_path: Path, subprocess_env: dict[str, str]) -> Iterator[str]:
    """A Spark Connect server with this package, on a port of its own."""
    port, log = free_port(), tmp_path / "server.log"
    environment = {
        **subprocess_env,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(settings.BASE_DIR),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **({"JAVA_HOME": home} if (home := java()) else {}),
    }
    values = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(tmp_path),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": "false",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    command += ["--driver-memory", "512m", "--class", _SERVER]
    command += [word for name, value in values.items() for word in ("--conf", f"{name}={value}")]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=tmp_path
        )
    try:
        end = time.monotonic() + 90
        while not connects(port):
            assert server.poll() is None, log.read_text(errors="replace")[-3_000:]
            assert time.monotonic() < end, log.read_text(errors="replace")[-3_000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_the_pipeline_and_the_sink_through_a_server(
    remote: str, source: Source, tmp_path: Path, subprocess_env: dict[str, str]
) -> None:
    work()
    make("back")
    before = JobEvent.objects.count()
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, remote, str(tmp_path / "lake"), json.dumps(source.options)],
        env=subprocess_env, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "class": "pyspark.sql.connect.session",
        "events": [before, 0],
        "days": [1, 0],
        "gold": [10, 8, 1],
        "zone": "UTC",
    }
    assert Job.objects.filter(queue__name="back").count() == 20
