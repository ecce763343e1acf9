"""Ranges of a new job's fields, for the engine's checks, HTTP and Spark: this module needs no Django.

`engine/rows.py` has the fields themselves (`NewJob`), `queue/enqueue.py` explains them (`JobOptions`).
"""

from __future__ import annotations

#: The longest time that a job can name: about a hundred years.
MAX_SPAN_MS = 100 * 366 * 86_400_000
#: A later ``run_at`` would not be a ``datetime`` in every time zone.
MAX_YEAR = 9_000
#: Lowest and highest value of the numbers.
NUMBERS: dict[str, tuple[int, int]] = {
    "delay_ms": (0, MAX_SPAN_MS),
    "ttl_ms": (1, MAX_SPAN_MS),
    "result_ttl_ms": (1, MAX_SPAN_MS),
    "max_deliveries": (0, 2**31 - 1),
}
#: Bytes of the texts. A channel of PostgreSQL has at most 63.
TEXTS: dict[str, int] = {"key": 1_024, "name": 1_024, "tag": 256, "reply_to": 63}
