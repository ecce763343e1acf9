import pytest

from testproject.bench.figures import Figure, Target
from testproject.bench.report import summary, table


def figure(values: list[float], beside: list[float], target: Target | None = None) -> Figure:
    return Figure("claim", "in batches", "jobs/s", values, beside, "bare SQL" if beside else "", target)


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (None, None),
        (Target("ratio", at_least=0.5), True),
        (Target("ratio", at_least=0.6), False),
        (Target("value", at_least=100), True),
        (Target("value", at_most=99), False),
    ],
)
def test_targets(target: Target | None, met: bool | None) -> None:
    assert figure([90, 100, 110], [180, 200, 220], target).met is met
    assert figure([100], [], Target("ratio", at_least=1)).met is None, "no ceiling"


def test_table_and_summary() -> None:
    reached = figure([900, 1_000, 1_100], [2_000, 2_000, 2_000], Target("ratio", at_least=0.5))
    missed = figure([1], [4], Target("ratio", at_least=0.5))
    assert summary([reached, missed, figure([1], [1])]) == "1 of 2 targets reached."
    assert summary([figure([1], [1])]) == "No targets in these modes."
    lines = list(table([reached]))

    assert lines[0].split() == ["claim", "median", "lowest", "highest", "ceiling", "ratio", "target"]
    assert " ".join(lines[1].split()) == "in batches, jobs/s 1,000 900 1,100 2,000 0.50 ratio >= 0.5 reached"
    assert lines[2].strip() == "beside: bare SQL"
