"""Those who write events: workers as sites run them, and producers whose transactions end in another order."""

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

from django.db import Error, connection, transaction

from django_leasequeue.exceptions import LeaseQueueError

from .settings import QUEUE

BASE = Path(__file__).resolve().parents[3]
WORKERS = 2
#: Seconds that a worker gets to end when it is asked to.
ENDING = 60.0


class Writers:
    """Two workers and two producers, from when they are entered until :meth:`end`."""

    def __init__(self, directory: Path, seed: int, rate: float) -> None:
        self._directory = directory
        self._rate = rate
        self._over = threading.Event()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._producers = [
            threading.Thread(target=self._produce, args=(random.Random(f"{seed}/{number}"), slow), daemon=True)
            for number, slow in enumerate((False, True))
        ]
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        for number in range(WORKERS):
            command = [sys.executable, "manage.py", "runworker", "--queues", QUEUE, "--node", f"node{number}"]
            with (self._directory / f"worker{number}.log").open("wb") as log:
                self._workers.append(subprocess.Popen(command, cwd=BASE, stdout=log, stderr=subprocess.STDOUT))
        for producer in self._producers:
            producer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def end(self) -> None:
        """End all of them in order: no event comes after this, and all workers have lasted until now."""
        self._over.set()
        for producer in self._producers:
            producer.join()
        gone = [worker.args for worker in self._workers if worker.poll() is not None]
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            worker.wait(ENDING)
        if gone:
            raise RuntimeError(f"ended before its time, see the logs in {self._directory}: {gone}")

    def _produce(self, dice: random.Random, slow: bool) -> None:
        """Add jobs; slowly: hold the transaction open meanwhile, and roll one of five back."""
        from .tasks import work

        while not self._over.is_set():
            size = dice.randint(1, 40)
            pause = size / self._rate
            try:
                with transaction.atomic():
                    work.enqueue_many([(number,) for number in itertools.islice(self._numbers, size)])
                    if slow:
                        self._over.wait(dice.uniform(0, 2 * pause))
                        transaction.set_rollback(dice.random() < 0.2)
            except (Error, LeaseQueueError):
                connection.close()
                time.sleep(0.2)  # PostgreSQL is down
            self._over.wait(pause)
        connection.close()
