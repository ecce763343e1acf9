"""What the demo prints: the progress bar and the table."""

from __future__ import annotations

import time

from django.core.management.base import OutputWrapper

from .figures import Progress, Summary

_WIDTH = 40
_LONGEST = 96


class ProgressBar:
    """A line that is written over on a terminal; elsewhere a new line for each tenth.

    Args:
        out: where to print.
        total: how many jobs there are.
    """

    def __init__(self, out: OutputWrapper, total: int) -> None:
        self._out = out
        self._total = total
        self._live = out.isatty()
        self._tenths = -1
        self._began = time.monotonic()

    def show(self, now: Progress) -> None:
        """Draw where the jobs are."""
        share = now.ended / self._total if self._total else 1.0
        rate = now.ended / max(time.monotonic() - self._began, 0.001)
        filled = int(share * _WIDTH)
        bar = "#" * filled + "." * (_WIDTH - filled)
        text = f"[{bar}] {now.ended}/{self._total}  {rate:,.0f} jobs/s  dead {now.dead}"
        if now.retrying:
            text += f"  waiting for another try {now.retrying}"
        if self._live:
            self._out.write(f"\r{text:<{_LONGEST}}", ending="")
        elif int(share * 10) != self._tenths:
            self._tenths = int(share * 10)
            self._out.write(text)
        self._out.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            self._out.write("")


def table(summary: Summary) -> str:
    """Return the table of a finished run."""
    rows = [
        ("jobs done", f"{summary.completed:,}"),
        ("jobs/s", f"{summary.per_second:,.1f}"),
        ("lines, functions", f"{summary.lines:,}, {summary.functions:,}"),
        ("wait p50, p99", _span(summary.wait)),
        ("run p50, p99", _span(summary.run)),
        ("retries", f"{summary.retries:,}"),
        ("dead letters", f"{sum(group.count for group in summary.dead):,}"),
    ]
    lines = ["", *(f"  {name:<20}{value}" for name, value in rows)]
    if summary.dead:
        lines += ["", "  dead letters by error"]
        lines += [_cut(f"  {group.count:>6}  {group.error_type}: {group.example}") for group in summary.dead]
    return "\n".join(lines)


def _span(times: tuple[float, float]) -> str:
    return ", ".join(f"{time:,.0f} ms" if time >= 10 else f"{time:.1f} ms" for time in times)


def _cut(line: str) -> str:
    line = " ".join(line.splitlines())
    return line if len(line) <= 120 else line[:117] + "..."
