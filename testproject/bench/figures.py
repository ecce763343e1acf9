"""Figures: what was measured, what it stands beside, and what was to be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure is to reach: its median, or the median of its ratios, at least or at most so much."""

    of: Literal["value", "ratio"]
    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, value: float) -> bool:
        """Whether a value reaches it."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        sign, bound = (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        return f"{'ratio ' if self.of == 'ratio' else ''}{sign} {bound:,g}"


@dataclass(slots=True)
class Sample:
    """One timed piece of work and what it cost."""

    jobs: int
    seconds: float
    #: CPU seconds of this side: this process and the ones it counts in.
    client_cpu: float = 0.0
    #: CPU seconds of PostgreSQL; ``None`` where they cannot be read (another machine).
    server_cpu: float | None = None
    wal_bytes: int = 0
    #: CPU seconds of the one connection that did the work, where it is known.
    backend_cpu: float | None = None

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds if self.seconds > 0 else 0.0

    def costs(self) -> dict[str, float | None]:
        """What one job cost, CPU in microseconds."""
        jobs = max(self.jobs, 1)
        return {
            "client_cpu_us": self.client_cpu / jobs * 1e6,
            "server_cpu_us": None if self.server_cpu is None else self.server_cpu / jobs * 1e6,
            "backend_cpu_us": None if self.backend_cpu is None else self.backend_cpu / jobs * 1e6,
            "wal_bytes": self.wal_bytes / jobs,
        }


def median_costs(samples: Sequence[Sample]) -> dict[str, float | None]:
    """The median of each cost over several samples; ``None`` for what was never read."""
    rows = [sample.costs() for sample in samples]
    merged: dict[str, float | None] = {}
    for name in rows[0] if rows else ():
        known = [value for row in rows if (value := row[name]) is not None]
        merged[name] = median(known) if known else None
    return merged


@dataclass(slots=True)
class Figure:
    """One line of the report.

    Args:
        mode: name of the mode.
        name: what was measured.
        unit: of the values.
        values: one per round.
        beside: the ceiling's values of the same rounds, in the same unit; empty where there is none.
        label: what the ceiling is.
        target: what was to be reached.
        costs: of one job, see ``Sample.costs``.
        beside_costs: the ceiling's.
        details: further values for the JSON report.
        samples: what the values were taken from, where more is to be told of them.
        beside_samples: the ceiling's.
    """

    mode: str
    name: str
    unit: str
    values: list[float]
    beside: list[float] = field(default_factory=list)
    label: str = ""
    target: Target | None = None
    costs: dict[str, float | None] = field(default_factory=dict)
    beside_costs: dict[str, float | None] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    beside_samples: list[Sample] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the values."""
        return median(self.values)

    @property
    def ratios(self) -> list[float]:
        """Each value divided by its neighbour's of the same round."""
        return [value / other for value, other in zip(self.values, self.beside, strict=False) if other]

    @property
    def ratio(self) -> float | None:
        """The median of the ratios; ``None`` if there is no ceiling."""
        return median(self.ratios) if self.ratios else None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; ``None`` if there is none, or nothing to judge it by."""
        if self.target is None:
            return None
        judged = self.median if self.target.of == "value" else self.ratio
        return None if judged is None else self.target.met_by(judged)

    def as_dict(self) -> dict[str, Any]:
        """The figure for JSON."""
        return {
            "mode": self.mode,
            "name": self.name,
            "unit": self.unit,
            **_spread(self.values),
            "ceiling": {"label": self.label, **_spread(self.beside)} if self.beside else None,
            "ratios": [round(ratio, 4) for ratio in self.ratios],
            "ratio": None if self.ratio is None else round(self.ratio, 4),
            "target": None if self.target is None else str(self.target),
            "met": self.met,
            "costs": _rounded(self.costs),
            "ceiling_costs": _rounded(self.beside_costs),
            "details": self.details,
        }


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "values": [round(value, 4) for value in values],
        "min": round(min(values), 4),
        "median": round(median(values), 4),
        "max": round(max(values), 4),
    }


def _rounded(costs: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 2) for name, value in costs.items()}
