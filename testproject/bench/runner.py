"""A whole run: the modes one after the other, whatever becomes of one of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg

from django_leasequeue.engine import pool

from .bench import Bench
from .environment import environment, load
from .figures import Figure
from .measuring import Meter
from .modes import MODES
from .options import BenchOptions
from .progress import Progress
from .report import as_json
from .sandbox import Sandbox

logger = logging.getLogger("testproject.bench")


@dataclass(slots=True)
class Outcome:
    """What a run found."""

    figures: list[Figure]
    environment: dict[str, Any]
    options: dict[str, Any]
    seconds: float = 0.0
    #: What went wrong, by mode.
    errors: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def as_json(self) -> dict[str, Any]:
        """The report for JSON."""
        return as_json(
            self.figures,
            self.environment,
            self.options,
            seconds=self.seconds,
            errors=self.errors,
            interrupted=self.interrupted,
        )


def run(options: BenchOptions, modes: Sequence[str], progress: Progress) -> Outcome:
    """Run modes and clean up behind them; an interruption (Ctrl-C) ends the run with the figures so far.

    Args:
        options: what to do.
        modes: names of modes.
        progress: who is told what goes on.

    Returns:
        The figures; a mode that failed is named in ``errors``.

    Raises:
        BenchRefused: another run is at work, or the account may not make tables.
    """
    start = time.monotonic()
    with pool.connect(options.using) as connection:
        found = environment(connection, local=Meter(connection).postmaster is not None)
        with Sandbox(options.using, connection) as sandbox:
            bench = Bench(options, progress, sandbox.empty)
            outcome = Outcome(bench.figures, found, {**asdict(options), "modes": list(modes)})
            try:
                for name in modes:
                    _run_mode(bench, name, outcome)
            except KeyboardInterrupt:
                outcome.interrupted = True
            progress.step("cleaning up (Ctrl-C leaves it to the next run)")
    found["load_after"] = load()
    outcome.seconds = time.monotonic() - start
    progress.done()
    return outcome


def _run_mode(bench: Bench, name: str, outcome: Outcome) -> None:
    try:
        with bench.run_mode(name):
            MODES[name].run(bench)
    except psycopg.OperationalError:
        # The server is gone: the others would fail as well, and there is nothing left to clean up with.
        raise
    except Exception as error:
        logger.debug("The mode %s failed", name, exc_info=True)
        outcome.errors[name] = f"{type(error).__name__}: {error}"
