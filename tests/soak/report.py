"""The report: what was done, what came of it, and on what machine."""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import fields
from pathlib import Path
from statistics import median

from .evidence import SECOND
from .oracle import Oracle, Row

HEAD = (
    "fault", "count", "lost", "run twice, and why", "started late", "overlaps without `lost`",
    "more than a limit allows", "out of turn", "first job afterwards: p50, max",
)  # fmt: skip


def table(oracle: Oracle, names: list[str], without: dict[str, str]) -> str:
    rows = [_line(name, oracle.rows.get(name, Row())) for name in names if name not in without]
    rows += [(name, f"not on this machine: {why}", *("" for _ in HEAD[2:])) for name, why in without.items()]
    if "" in oracle.rows:
        rows.append(_line("", oracle.rows[""]))
    every = Row()
    for row, each in itertools.product(oracle.rows.values(), fields(Row)):
        setattr(every, each.name, getattr(every, each.name) + getattr(row, each.name))
    rows.append(_line("all", every))
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
    return f"{median(recoveries) / SECOND:.2f} s, {max(recoveries) / SECOND:.2f} s" if recoveries else "-"


#: Seconds that a process sleeps that looks whether it wakes up in time.
BEAT = 0.02


class Machine:
    """How busy the machine is: its load, and what the hypervisor took away since the begin."""

    def __init__(self) -> None:
        self._begin = _ticks()
        self._loads: list[float] = []

    def watch(self, crowded: list[int]) -> None:
        """Note the moments (monotonic) at which this process had to wait for a processor, until it ends."""

        def sleep() -> None:
            while True:
                due = time.monotonic() + BEAT
                time.sleep(BEAT)
                if time.monotonic() > due + BEAT:
                    crowded.append(time.monotonic_ns())

        threading.Thread(target=sleep, name="machine", daemon=True).start()

    def look(self) -> float:
        self._loads.append(os.getloadavg()[0])
        return self._loads[-1]

    def __str__(self) -> str:
        cores, now = len(os.sched_getaffinity(0)), _ticks()
        passed = sum(now) - sum(self._begin)
        steal = 100 * (now[7] - self._begin[7]) / passed if passed else 0.0
        load, most = median(self._loads or [0.0]), max(self._loads, default=0.0)
        text = f"{cores} cores, load {load:.1f} (at most {most:.1f}), {steal:.1f} % stolen by the hypervisor"
        if steal > 1 or load > cores:
            text += "; times are longer than on a machine of its own"
        return text


def _ticks() -> list[int]:
    return [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def counts(oracle: Oracle) -> str:
    found, graphs = oracle.counts, oracle.flows.graphs
    return (
        f"{found['committed']:,} jobs committed, {found['undone']:,} rolled back, {found['runs']:,} runs;"
        f" {found['kills']:,} kills, of these {found['crashes']:,} crashes of PostgreSQL, {found['lossy']:,} failovers"
        f" that took {found['lost']:,} jobs along; {found['cancelled']:,} statements cancelled;"
        f" {graphs.workflows:,} workflows, {graphs.cancels:,} cancels, {oracle.flows.limits.jobs:,} jobs under limits"
        f" ({oracle.flows.limits.kept or 'no calm time for a rate'}),"
        f" {graphs.tried_again:,} dead letters tried again;"
        f" {oracle.flows.acks.late:,} late acks accepted, {oracle.flows.acks.refused:,} of others refused;"
        f" {oracle.durables.steps:,} parts of durable jobs passed, {oracle.durables.suspensions:,} suspensions,"
        f" {oracle.durables.undone:,} rows undone;"
        f" {found['told']:,} told that their lease is lost, {found['answers']:,} answers;"
        f" {found['records']:,} records written, {oracle.ledgers.read_records:,} read,"
        f" {oracle.ledgers.read_events:,} rows of the lease log read;"
        f" at most {oracle.most_deliveries} deliveries of a job that harms nobody"
    )
