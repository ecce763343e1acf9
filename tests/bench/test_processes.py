"""Reading processes, and watching children."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testproject.bench import processes
from testproject.bench.children import Child, ChildFailed
from testproject.bench.stamps import Stamps
from tests.support.waiting import eventually

BUSY = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass"


def test_cpu_time_and_memory_of_this_process_its_children_and_one_that_is_gone() -> None:
    before = processes.family_cpu(os.getpid())
    with subprocess.Popen([sys.executable, "-c", BUSY.format(0.2)]) as process:
        process.wait()
    after = processes.times(os.getpid())
    assert after.parent == os.getppid()
    assert processes.family_cpu(os.getpid()) - before >= 0.1  # of 0.2: clocks tick
    assert (processes.resident_bytes(os.getpid()) or 0) > 1_000_000
    for read in (processes.times, processes.resident_bytes, processes.family_cpu):
        assert read(process.pid) is None


def test_a_child_that_fails_says_why_and_one_that_does_not_end_is_stopped() -> None:
    with Child(["-c", "raise SystemExit('no queue here')"], {}) as child, pytest.raises(ChildFailed) as caught:
        child.wait(300)
    assert "ended with code 1" in str(caught.value)
    assert "no queue here" in str(caught.value)
    with Child(["-c", "import time; time.sleep(600)"], {}) as child:
        with pytest.raises(ChildFailed, match=r"did not end within 0\.1 s"):
            child.wait(0.1)
        child.check()
    assert not child.running


@pytest.mark.slow
def test_children_end_with_a_benchmark_that_was_killed(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    child = (
        f"import os, pathlib; pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        "from testproject.bench.child import watch; watch()"
    )
    parent = (
        "import time; from testproject.bench.children import Child\n"
        f"with Child(['-c', {child!r}], {{}}): time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        eventually(lambda: told.exists() and told.read_text(), "the child runs")
        process.kill()
    eventually(lambda: processes.times(int(told.read_text())) is None, "the child ends with its parent")


def test_stamps_of_earlier_tries_are_dropped() -> None:
    code = (
        "import socket, sys; from testproject.bench import stamps\n"
        "told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); told.connect(stamps.address())\n"
        "told.send(stamps.STAMP.pack(1, 10)); told.send(stamps.STAMP.pack(2, 20))\n"
        "stamps.STAMP.pack_into(stamps.counter(), 0, 7, 0)"
    )
    with Stamps() as told:
        subprocess.run([sys.executable, "-c", code], env={**os.environ, **told.environment}, check=True)

        assert told.wait(2, 300) == 20
        assert told.wait(3, 0.01) is None
        assert told.count == 7
