"""Spark's own servers as processes of a test: a standalone cluster's, and Spark Connect."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from django_leasequeue.spark.session import java
from tests.support.ports import free_port

SPARK_HOME = Path(pyspark.__file__).parent
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


def environment(**more: str) -> dict[str, str]:
    """What a process of Spark's needs, and nothing that leads to this checkout or its settings."""
    return {
        "PATH": os.environ["PATH"], "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1",
        **({"JAVA_HOME": home} if (home := java()) else {}), **more,
    }  # fmt: skip


def words(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("--conf", f"{name}={value}")]


@contextmanager
def started(
    command: Sequence[str], log: Path, env: dict[str, str], cwd: Path, port: int | None = None
) -> Iterator[None]:
    """Run a server, from when it listens on its port; at the end it and its children are gone."""
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=cwd
        )
    try:
        end = time.monotonic() + 240
        while port is not None and not _connects(port):
            assert server.poll() is None, log.read_text(errors="replace")[-3_000:]
            assert time.monotonic() < end, log.read_text(errors="replace")[-3_000:]
            time.sleep(0.2)
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@contextmanager
def connect_server(cwd: Path, env: dict[str, str], master: str, conf: dict[str, str] | None = None) -> Iterator[str]:
    """Run a Spark Connect server; gives its address."""
    port = free_port()
    (cwd / "pyspark").symlink_to(SPARK_HOME)  # compiled, unlike Spark's zip of it
    values = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(cwd), "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(cwd / "warehouse"), "spark.ui.enabled": "false", **(conf or {}),
    }  # fmt: skip
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, "--driver-memory", "512m"]
    with started([*command, "--class", _CONNECT, *words(values)], cwd / "connect.log", env, cwd, port):
        yield f"sc://127.0.0.1:{port}"


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
