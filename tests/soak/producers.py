"""The producers: ``python -m tests.soak.producers SEED URL``. They enqueue until SIGTERM, in every way there is."""

from __future__ import annotations

import signal
import sys
import time

import django

from django_leasequeue.client import Client

from .durable_load import DurableProducer
from .flow_load import FlowProducer
from .load import Producer, stop

#: Seconds between two things that a producer of workflows and limits does, on average.
FLOW_PAUSE = 0.7
#: The same of the one whose workflows are cancelled while they run.
HALT_PAUSE = 3.0
#: The same of the one whose consumers ack late: they get through some 2.5 jobs in a second, and nothing is to gather.
TARDY_PAUSE = 0.6


def main(seed: int, url: str) -> None:
    """Produce until SIGTERM."""
    django.setup()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    jobs = {"plain": 6, "single": 3, "rollback": 3, "savepoint": 2, "bulk": 1}
    producers = [Producer(place, seed, jobs) for place in (1, 2)]
    producers += [Producer(3, seed, {"keyed": 1}), Producer(4, seed, {"ask": 1})]
    producers += [Producer(5, seed, {"post": 1})]
    producers += [Producer(place, seed, {"record": 3, "fast_record": 1}) for place in (6, 7)]
    flow = {"ordered": 5, "pairs": 3, "paced": 3, "recalls": 1, "uniques": 3, "newest": 2}
    flow |= {"chains": 2, "chords": 3, "graphs": 2, "stops": 1}
    producers += [FlowProducer(place, seed, flow, FLOW_PAUSE) for place in (8, 9)]
    producers += [FlowProducer(10, seed, {"halts": 1}, HALT_PAUSE)]
    producers += [Producer(11, seed, {"wait": 1}), Producer(12, seed, {"tardy": 1}, TARDY_PAUSE)]
    producers += [DurableProducer(13, seed, {"durables": 1, "emits": 2})]
    with Client(url) as client:
        for producer in producers:
            producer.client = client
            producer.start()
        for producer in producers:
            while producer.is_alive():
                time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
