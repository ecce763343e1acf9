"""The HTTP API ``/v1/queues``: OpenStack Zaqar v1 on the same engine and tables.

It imports what the APIs share and the engine. Start at `urls.py`, then `messages.py`.
"""
