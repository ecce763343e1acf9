"""The HTTP door ``/v0/topics``: queues and logs for workers in any language.

It imports what the doors share (`http`), the queue API and the engine. Start at `urls.py`, then `leases.py` (claim,
ack, extend) and `streams.py` (a worker's stream, whose claims `hub.py` shares).
"""
