"""Running code where some packages are not installed."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_HEAD = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
"""


def run_without(absent: Iterable[str], code: str, *, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a process that cannot import some top-level packages, warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", _HEAD.format(absent=set(absent)) + code], cwd=directory,
        env=os.environ if directory is None else os.environ | {"PYTHONPATH": str(directory)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
