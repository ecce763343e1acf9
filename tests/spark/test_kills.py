"""Some faults of each kind, of the many that ``python -m tests.spark.kills`` makes."""

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.kills.__main__ import plan
from tests.support.environment import BASE_DIR, python


@pytest.mark.slow
@pytest.mark.chaos
def test_kills_and_a_crash_lose_and_repeat_nothing(tmp_path: Path) -> None:
    words = ("--kills", "2", "--crashes", "1", "--commits", "1", "--seed", "1", "--directory", tmp_path)
    done = python("-m", "tests.spark.kills", *words, cwd=BASE_DIR)
    assert done.returncode == 0, f"{done.stdout[-3_000:]}\n{done.stderr[-3_000:]}"
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    rows = {line[0]: line[1] for line in lines if len(line) == 2}
    assert rows["PostgreSQL crashed"] == "1"
    assert rows["missing"] == rows["twice"] == rows["not as they are in the log"] == "0"
    assert int(rows["events in the lake"].replace(",", "")) > 0


def test_a_seed_repeats_its_plan() -> None:
    counts = {"kill": 5, "crash": 2, "middle": 1}
    assert plan(7, counts) == plan(7, counts)
    assert Counter(step.kind for step in plan(7, counts)) == counts
