"""The report: what was done, what came of it, and on what machine."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

from .evidence import SECOND
from .oracle import Oracle, Row

HEAD = (
    "fault", "count", "lost", "run twice, and why", "started late", "overlaps without `lost`",
    "more than a limit allows", "out of turn", "first job afterwards: p50, max",
)  # fmt: skip


def table(oracle: Oracle, names: list[str], without: dict[str, str]) -> str:
    """Return the table, in Markdown."""
    rows = [_line(name, oracle.rows.get(name, Row())) for name in names if name not in without]
    rows += [(name, f"not on this machine: {why}", *("" for _ in HEAD[2:])) for name, why in without.items()]
    if "" in oracle.rows:
        rows.append(_line("", oracle.rows[""]))
    every = list(oracle.rows.values())
    rows.append(
        (
            "all", str(sum(row.count for row in every)), str(sum(row.lost for row in every)),
            str(sum(row.again.total() for row in every)), str(sum(row.late for row in every)),
            str(sum(row.overlaps for row in every)), str(sum(row.crowded for row in every)),
            str(sum(row.early for row in every)), _times([took for row in every for took in row.recoveries]),
        )
    )  # fmt: skip
    lines = [HEAD, tuple("---" for _ in HEAD), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _line(name: str, row: Row) -> tuple[str, ...]:
    total = row.again.total()
    why = ", ".join(f"{count} {reason}" for reason, count in row.again.most_common())
    return (
        name or "(none)", str(row.count), str(row.lost), f"{total}: {why}" if total else "0", str(row.late),
        str(row.overlaps), str(row.crowded), str(row.early),
        _times(row.recoveries) + (f"; {row.busy} times all were busy with suspects" if row.busy else ""),
    )  # fmt: skip


def _times(recoveries: list[int]) -> str:
    if not recoveries:
        return "-"
    return f"{median(recoveries) / SECOND:.2f} s, {max(recoveries) / SECOND:.2f} s"


class Machine:
    """How busy the machine is: its load, and what the hypervisor took away since the begin."""

    def __init__(self) -> None:
        self._begin = _ticks()
        self._loads: list[float] = []

    def look(self) -> float:
        """Note the load; return it."""
        self._loads.append(os.getloadavg()[0])
        return self._loads[-1]

    def __str__(self) -> str:
        cores = len(os.sched_getaffinity(0))
        now = _ticks()
        passed = sum(now) - sum(self._begin)
        steal = 100 * (now[7] - self._begin[7]) / passed if passed else 0.0
        load = median(self._loads) if self._loads else 0.0
        most = max(self._loads, default=0.0)
        text = f"{cores} cores, load {load:.1f} (at most {most:.1f}), {steal:.1f} % stolen by the hypervisor"
        if steal > 1 or load > cores:
            text += "; times are longer than on a machine of its own"
        return text


def _ticks() -> list[int]:
    return [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def counts(oracle: Oracle) -> str:
    """Return what happened in all, in words."""
    found = oracle.counts
    return (
        f"{found['committed']:,} jobs committed, {found['undone']:,} rolled back, {found['runs']:,} runs;"
        f" {found['kills']:,} kills, of these {found['crashes']:,} crashes of PostgreSQL, {found['lossy']:,} failovers"
        f" that took {found['lost']:,} jobs along; {found['cancelled']:,} statements cancelled;"
        f" {oracle.flows.workflows:,} workflows, {oracle.flows.cancels:,} cancels,"
        f" {oracle.flows.limited:,} jobs under limits, {oracle.flows.tried_again:,} dead letters tried again;"
        f" {oracle.flows.acks.late:,} late acks accepted, {oracle.flows.acks.refused:,} of others refused;"
        f" {oracle.durables.steps:,} parts of durable jobs passed, {oracle.durables.suspensions:,} suspensions;"
        f" {found['told']:,} told that their lease is lost, {found['answers']:,} answers;"
        f" {found['records']:,} records written, {oracle.ledgers.read_records:,} read,"
        f" {oracle.ledgers.read_events:,} rows of the lease log read;"
        f" at most {oracle.most_deliveries} deliveries of a job that harms nobody"
    )
