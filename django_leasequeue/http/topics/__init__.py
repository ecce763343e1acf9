"""The HTTP API ``/v0/topics``: queues and logs for workers in any language.

Start at `urls.py`, then `leases.py` (claim, ack, extend) and `streams.py` (a worker's stream, fed by `hub.py`).
"""
