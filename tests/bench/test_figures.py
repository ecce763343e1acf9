import pytest

from testproject.bench.figures import Figure, Sample, Target, median_costs
from testproject.bench.report import number, summary, table


def figure(values: list[float], beside: list[float], target: Target | None = None) -> Figure:
    return Figure("claim", "in batches", "jobs/s", values, beside, "bare SQL" if beside else "", target)


def test_the_ratio_is_taken_round_by_round() -> None:
    # The machine became twice as slow in the third round: the rates changed, the ratios did not.
    found = figure([100, 100, 50], [200, 200, 100])

    assert found.ratios == [0.5, 0.5, 0.5]
    assert found.ratio == 0.5


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


def test_costs_are_of_one_job_and_unknown_ones_are_left_out() -> None:
    samples = [Sample(10, 1.0, 0.001, None, 500), Sample(10, 1.0, 0.003, None, 700)]

    costs = median_costs(samples)

    assert costs.pop("client_cpu_us") == pytest.approx(200)
    assert costs == {"server_cpu_us": None, "backend_cpu_us": None, "wal_bytes": 60}


def test_table_and_summary() -> None:
    reached = figure([900, 1_000, 1_100], [2_000, 2_000, 2_000], Target("ratio", at_least=0.5))
    missed = figure([1], [4], Target("ratio", at_least=0.5))
    assert summary([reached, missed, figure([1], [1])]) == "1 of 2 targets reached."
    assert summary([figure([1], [1])]) == "No targets in these modes."
    lines = list(table([reached]))

    assert lines[0].split() == ["claim", "median", "lowest", "highest", "ceiling", "ratio", "target"]
    assert " ".join(lines[1].split()) == "in batches, jobs/s 1,000 900 1,100 2,000 0.50 ratio >= 0.5 reached"
    assert lines[2].strip() == "beside: bare SQL"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.12345, "0.123"), (1.5, "1.50"), (12.345, "12.3"), (123.4, "123"), (98_765, "98,800")],
)
def test_three_digits_that_mean_something(value: float, text: str) -> None:
    assert number(value) == text
