"""Spark's own servers: a standalone cluster, whose executors have what was shipped to them alone; Spark Connect."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import duckdb
import pyspark
import pytest
from django.conf import settings
from django.db import connections

from django_leasequeue.models import JobEvent, StoredJob
from django_leasequeue.spark.database import address, resolve
from django_leasequeue.spark.session import java
from tests.engine.helpers import make
from tests.spark.conftest import Source
from tests.spark.helpers import Database, many, work
from tests.support.environment import python
from tests.support.ports import free_port
from tests.support.waiting import eventually

SPARK_HOME = Path(pyspark.__file__).parent
SUBMIT = [str(SPARK_HOME / "bin" / "spark-submit"), "--driver-memory", "512m"]
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def environment(**more: str) -> dict[str, str]:
    """What a process of Spark's needs, and nothing that leads to this checkout or its settings."""
    return {
        "PATH": os.environ["PATH"], "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1",
        **({"JAVA_HOME": home} if (home := java()) else {}), **more,
    }  # fmt: skip


def words(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("--conf", f"{name}={value}")]


@contextmanager
def started(command: list[str], log: Path, env: dict[str, str], cwd: Path, port: int | None = None) -> Iterator[None]:
    """Run a server, from when it listens on its port; at the end it and its children are gone."""
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=env, stdout=out, stderr=out, start_new_session=True, cwd=cwd)
    try:
        if port is not None:
            eventually(lambda: server.poll() is not None or _connects(port), f"a server (see {log})", 240)
        assert server.poll() is None, log.read_text(errors="replace")[-3_000:]
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


#: What executors need beside the package, and what psycopg needs.
PACKAGES = ("numpy", "psycopg", "psycopg-binary", "pyarrow", "typing-extensions")
#: Processes of a few seconds.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = {
    "spark.driver.extraJavaOptions": JAVA, "spark.executor.extraJavaOptions": JAVA, "spark.executor.memory": "512m",
    "spark.log.level": "WARN", "spark.sql.shuffle.partitions": "1", "spark.ui.enabled": "false",
}  # fmt: skip
_READ = """
import json, sys
from pyspark.sql import SparkSession

options, meeting = sys.argv[1:]
events = SparkSession.builder.getOrCreate().read.format("leasequeue").options(**json.loads(options)).load()


def told(rows):
    import sys, time
    from pathlib import Path
    from django_leasequeue.spark import source

    # Each executor says that it is in the middle of a partition, and waits for the other one.
    count, met = 0 if next(rows, None) is None else 1, Path(meeting)
    (met / Path.cwd().name).touch()
    end = time.monotonic() + 240
    while len(list(met.iterdir())) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    count += sum(1 for _ in rows)
    yield source.__file__, str(Path.cwd()), sys.path, sorted({"django", "testproject"} & set(sys.modules)), count


print(json.dumps(events.select("id").rdd.mapPartitions(told).collect()))
"""


@dataclass
class Cluster:
    """A master, two workers of one core each, and an environment for executors: unpacked, and as an archive."""

    master: str
    workers: list[Path]
    environment: Path
    archive: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    made = executors_environment(home)
    port = free_port()
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    env = environment(SPARK_DAEMON_MEMORY="128m", SPARK_DAEMON_JAVA_OPTS=JAVA)
    deploy, place = "org.apache.spark.deploy", ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)  # half a gigabyte
        master = [spark_class, f"{deploy}.master.Master", *place, "--port", str(port)]
        stack.enter_context(started(master, home / "master.log", env, home, port))
        workers = [home / "worker1", home / "worker2"]
        for worker in workers:
            command = [spark_class, f"{deploy}.worker.Worker", *place, "--work-dir", str(worker)]
            command += ["--cores", "1", "--memory", "512m", f"spark://127.0.0.1:{port}"]
            stack.enter_context(started(command, worker.with_suffix(".log"), env, home))
        yield Cluster(f"spark://127.0.0.1:{port}", workers, made, packed(made))


def executors_environment(home: Path) -> Path:
    """Make what the how-to makes, without a network: of our wheel, and of packages as they are installed here."""
    made = home / "environment"
    venv.EnvBuilder(symlinks=True).create(made)
    site = next(made.glob("lib/python*/site-packages"))
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home)]
    subprocess.run(build, cwd=settings.BASE_DIR, check=True, capture_output=True)
    with zipfile.ZipFile(next(home.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    for name in PACKAGES:
        for file in distribution(name).files or []:
            if ".." not in file.parts and file.suffix != ".pyc":
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), site / file)
    return made


def packed(made: Path) -> Path:
    # Spark keeps the rights of files of this kind of archive only. Level 0: what is packed here is unpacked here.
    archive = made.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        for name in ("bin", "lib", "pyvenv.cfg"):
            tar.add(made / name, name)
    return archive


def submit(cluster: Cluster, cwd: Path, driver: Path, *words_: str, **env: str) -> str:
    """Run spark-submit as the how-to says: ``environment`` is the archive there, and the driver's own here."""
    (cwd / "environment").symlink_to(driver)
    (cwd / "pyspark").symlink_to(SPARK_HOME)
    command = [*SUBMIT, "--master", cluster.master]
    command += ["--archives", f"{cluster.archive}#environment", *words(CONF), *words_]
    return output(command, cwd, environment(PYSPARK_PYTHON="./environment/bin/python", **env))


def output(command: list[str], cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=480, check=False)
    assert done.returncode == 0, f"{done.stdout[-1_000:]}\n{done.stderr[-6_000:]}"
    return done.stdout


def test_executors_read_at_the_same_time(cluster: Cluster, database: Database, source: Source, tmp_path: Path) -> None:
    many(database, 20_000)
    met = tmp_path / "met"
    met.mkdir()
    script = tmp_path / "read.py"
    script.write_text(_READ, encoding="utf-8")
    options = json.dumps({**source.options, "numPartitions": "2"})
    # The driver, too, has the archive only: there is no Django in it.
    said = submit(cluster, tmp_path, cluster.environment, str(script), options, str(met))
    parts = json.loads(said.splitlines()[-1])
    assert sum(count for *_, count in parts) == 20_000
    # Both executors were in the middle of reading at one time.
    assert len({place for _, place, *_ in parts}) == len(list(met.iterdir())) == 2
    for file, place, path, django, _ in parts:
        assert any(worker in Path(place).parents for worker in cluster.workers)
        assert Path(file).is_relative_to(Path(place) / "environment")
        assert str(settings.BASE_DIR) not in path
        assert django == []


def test_the_pipeline_by_spark_submit(cluster: Cluster, subprocess_env: dict[str, str], tmp_path: Path) -> None:
    work()
    given = {name: subprocess_env[name] for name in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")}
    command = [str(settings.BASE_DIR / "manage.py"), "leasequeue_lake", "run", "--lake", str(tmp_path / "lake")]
    said = submit(cluster, tmp_path, Path(sys.prefix), *command, **given)
    assert f"bronze (events): {JobEvent.objects.count()} in" in said
    check(tmp_path / "lake")


def check(lake: Path) -> None:
    """Look at silver and gold of what ``work`` does, without Spark."""

    def ask(query: str, table: str) -> list[tuple[Any, ...]]:
        files = [str(file) for file in (lake / table).rglob("*.parquet")]
        return duckdb.execute(query, [files]).fetchall()

    jobs = "SELECT state, count(*)::int FROM read_parquet(?) GROUP BY ALL ORDER BY ALL"
    assert ask(jobs, "silver/jobs") == [("completed", 8), ("dead", 1), ("open", 1)]
    attempts = "SELECT node, outcome, count(*)::int FROM read_parquet(?) GROUP BY ALL ORDER BY ALL"
    assert ask(attempts, "silver/attempts") == [("a", "completed", 4), ("a", "released", 1), ("b", "completed", 4)]
    throughput = "SELECT sum(enqueued)::int, sum(completed)::int, sum(failed)::int FROM read_parquet(?)"
    assert ask(throughput, "gold/throughput") == [(10, 8, 1)]
    assert ask("SELECT fingerprint, dead::int FROM read_parquet(?)", "gold/poison") == [("f1", 1)]
    assert ask("SELECT sum(violations)::int FROM read_parquet(?)", "gold/quality") == [(0,)]


def test_an_address_keeps_its_search_path_and_shows_no_password(test_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = connections["default"].get_connection_params() | {"options": "-c search_path=pg_temp", "password": "secret"}
    monkeypatch.setattr(connections["default"], "get_connection_params", lambda: given)
    found = address("default")
    assert found["password"] == "secret"
    assert "secret" not in found["dsn"]
    with resolve(found).connect() as connection:
        assert connection.execute("SHOW search_path").fetchone() == ("pg_temp",)


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
    port = free_port()
    (tmp_path / "pyspark").symlink_to(SPARK_HOME)  # compiled, unlike Spark's zip of it
    values = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(tmp_path), "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"), "spark.ui.enabled": "false",
    }  # fmt: skip
    command = [*SUBMIT, "--master", "local[1]", "--class", _CONNECT, *words(values)]
    with started(command, tmp_path / "connect.log", env, tmp_path, port):
        yield f"sc://127.0.0.1:{port}"


def test_through_spark_connect(remote: str, source: Source, tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    work()
    make("back")
    before = JobEvent.objects.count()
    done = python("-c", _CLIENT, remote, tmp_path / "lake", json.dumps(source.options), env=subprocess_env)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "class": "pyspark.sql.connect.session", "events": [before, 0], "days": [1, 0], "gold": [10, 8, 1],
        "zone": "UTC",
    }  # fmt: skip
    assert StoredJob.objects.filter(queue__name="back").count() == 20
