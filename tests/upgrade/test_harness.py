"""The harness of upgrades finds what it is there for: lost jobs, wrong ends, errors of callers and in logs."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from .versions import PROJECT, Version


@pytest.fixture(scope="module")
def judge() -> Any:
    # By its file: other tests have a package shop, too.
    spec = spec_from_file_location("upgrade_judge", PROJECT / "shop" / "judge.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("entry", "became", "wrong"), [
    (["many", 3, "a"], {("double", 3): ("completed", 6)}, ""),
    (["many", 3, "a"], {}, "many 3 (a): it should be ('completed', 6), and is lost"),
    (["many", 3, "a"], {("double", 3): ("ready", None)}, "and is ('ready', None)"),
    (["many", 3, "a"], {("double", 3): ("completed", 7)}, "and is ('completed', 7)"),
    (["doomed", 3, "a"], {("doomed", 3): ("dead", None)}, ""),
    (["doomed", 3, "a"], {("doomed", 3): ("completed", 6)}, "it should be ('dead', None)"),
    (["durable", 3, "a"], {("durable", 3): ("completed", 6)}, ""),
    (["chord", 3, "a"], {("total", 12): ("completed", 12)}, ""),
    (["chord", 3, "a"], {("total", 9): ("completed", 9)}, "chord 3 (a)"),
    (["error", "look", "Traceback"], {}, "a caller saw an error in look: Traceback"),
])  # fmt: skip
def test_what_is_wrong_is_found(judge: Any, entry: list[Any], became: dict[Any, Any], wrong: str) -> None:
    right, found = judge.compare([entry], became)
    assert (sum(right.values()), len(found)) == ((0, 1) if wrong else (1, 0))
    assert wrong in "".join(found)


def test_errors_in_logs_are_found_but_for_failed_jobs(tmp_path: Path) -> None:
    (tmp_path / "head-worker.log").write_text(
        "2026-11-30 15:28:11 WARNING django_leasequeue.reaper Another takes over\n"
        "2026-11-30 15:29:01 ERROR django_leasequeue.jobs Job failed for good\n  Traceback (most recent call last):\n"
        "2026-11-30 15:29:02 ERROR django_leasequeue.worker A claim failed\nTraceback (most recent call last):\n",
        encoding="utf-8",
    )
    errors = Version("head", Path(sys.executable), "", tmp_path).errors()
    assert [error.partition(" ERROR ")[2] for error in errors] == ["django_leasequeue.worker A claim failed", ""]


def test_a_ledger_ends_with_its_last_whole_line(judge: Any, tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text('["many", 1, "a"]\n["many", 2', encoding="utf-8")
    assert list(judge.entries([str(tmp_path / "ledger")])) == [["many", 1, "a"]]
