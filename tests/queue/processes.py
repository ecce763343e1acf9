"""Other processes on the same test database."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

_PROLOGUE = """
import os, sys, time
import django
django.setup()
from django_leasequeue import BufferedQueue, Consumer, Queue
"""


@contextmanager
def python(code: str, env: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code with Django set up; it is killed at the end of the block if it still runs.

    ``print("ready", flush=True)`` and ``sys.stdin.readline()`` in the code, ``readline`` and ``go`` here, keep step.
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _PROLOGUE + textwrap.dedent(code), *arguments], env=env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=120)


def readline(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    process.stdin.write("\n")
    process.stdin.flush()
