"""The healer: an operator who finds dead letters, mends what was wrong, and has them tried again."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from django_leasequeue import engine
from django_leasequeue.engine import ConnectionExecutor
from django_leasequeue.exceptions import LeaseQueueError

from . import flow_tasks
from .evidence import Witness

logger = logging.getLogger("tests.soak.healer")

#: Seconds between two looks, and the part of what is found that is healed each time: the rest stays dead for a while.
LOOK, PART = 1.0, 0.3

DOOMED = """
SELECT q.name, d.seq, (j.data::jsonb #>> '{args,0}')::bigint FROM leasequeue_deadletter d
JOIN leasequeue_job j USING (seq) JOIN leasequeue_queue q ON q.id = d.queue_id WHERE d.in_place AND j.name = %s
"""


class Healer(threading.Thread):
    """Brings back dead letters of ``doomed`` until it is stopped; those of other tasks stay dead."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], witness: Witness, seed: int) -> None:
        super().__init__(name="healer", daemon=True)
        self._connect = connect
        self._witness = witness
        self._dice = random.Random(f"{seed}/healer")
        self.over = threading.Event()

    def run(self) -> None:
        flow_tasks.healed(0).parent.mkdir()
        while not self.over.wait(LOOK):
            try:
                with self._connect() as connection:
                    self._heal(connection)
            except (psycopg.Error, LeaseQueueError) as error:
                logger.info("%s", " ".join(str(error).split())[:200])

    def _heal(self, connection: psycopg.Connection[Any]) -> None:
        for queue, seq, number in connection.execute(DOOMED, [flow_tasks.doomed.module_path]).fetchall():
            if self._dice.random() < PART:
                flow_tasks.healed(number).touch()
                if ConnectionExecutor(connection).run(engine.redrive(queue, [seq]))[0].state == "ready":
                    self._witness.say("healed", [number])
