"""Watching children."""

import subprocess
import sys
from pathlib import Path

import pytest

from testproject.bench import processes
from testproject.bench.children import Child, ChildFailed
from tests.support.waiting import eventually


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
