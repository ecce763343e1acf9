"""How fast jobs are claimed while the lake reads the same database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from psycopg import sql

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor, Ending, claim, finish, pool
from django_leasequeue.engine.leases.floor import ClaimCursor

from .bench import NODE, jobs_of
from .options import PROJECT
from .sql import statement

_BATCH = 200
_QUEUE = "spark-claims"


class Claims:
    """One producer and consumer on a queue of its own; only the claims and their acks are counted."""

    def __init__(self, using: str) -> None:
        self._connection = pool.connect(using)
        self._executor = ConnectionExecutor(self._connection)
        self._executor.run(engine.create(_QUEUE, project=PROJECT, preset="django"))
        self._trail = ClaimCursor()

    def close(self) -> None:
        """Remove the queue."""
        self._executor.run(engine.delete(_QUEUE, project=PROJECT))
        self._connection.close()

    def vacuum(self) -> None:
        """Let the space of deleted jobs be used again: what one measurement leaves behind does not slow the next."""
        self._connection.execute(sql.SQL(statement("vacuum_jobs")))

    def rate(self, go_on: Callable[[float], bool]) -> float:
        """Return the jobs claimed and finished a second of that work, until ``go_on`` (given the seconds) says no."""
        begin = time.monotonic()
        done, busy = 0, 0.0
        while go_on(time.monotonic() - begin):
            self._executor.run(engine.enqueue(_QUEUE, jobs_of(_BATCH), project=PROJECT, create=False, fresh=True))
            start = time.perf_counter()
            leased = self._executor.run(claim(_QUEUE, NODE, _BATCH, project=PROJECT, cursor=self._trail))
            endings = [Ending(job.seq, job.token, result_json="null") for job in leased]
            self._executor.run(finish(endings, NODE, project=PROJECT))
            busy += time.perf_counter() - start
            done += len(leased)
        return done / max(busy, 1e-9)

    def rate_during(self, work: Callable[[], object]) -> float:
        """Return the rate while something else is done in a thread; what that raises is raised here."""
        failed: list[BaseException] = []

        def kept() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  (raised below)
                failed.append(error)

        thread = threading.Thread(target=kept)
        thread.start()
        try:
            found = self.rate(lambda _: thread.is_alive())
        finally:
            thread.join()
        if failed:
            raise failed[0]
        return found
