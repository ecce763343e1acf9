"""Some kills of the driver and a crash of PostgreSQL, of the many that ``python -m tests.spark.kills`` makes."""

from pathlib import Path

import pytest

from tests.spark.kills.__main__ import plan
from tests.support.environment import BASE_DIR, python


@pytest.mark.slow
@pytest.mark.chaos
def test_kills_and_a_crash_lose_and_repeat_nothing(tmp_path: Path) -> None:
    words = ("--kills", "3", "--crashes", "1", "--seed", "1", "--directory", tmp_path)
    done = python("-m", "tests.spark.kills", *words, cwd=BASE_DIR)
    assert done.returncode == 0, f"{done.stdout[-3_000:]}\n{done.stderr[-3_000:]}"
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    rows = {line[0]: line[1] for line in lines if len(line) == 2}
    assert rows["PostgreSQL crashed"] == "1"
    assert rows["missing"] == rows["twice"] == rows["not as they are in the log"] == "0"
    assert int(rows["events in the lake"].replace(",", "")) > 0


def test_a_seed_repeats_its_plan() -> None:
    assert plan(7, 5, 2) == plan(7, 5, 2)
    assert sum(step.crash for step in plan(7, 5, 2)) == 2
