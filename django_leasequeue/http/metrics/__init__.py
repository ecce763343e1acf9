"""The page that Prometheus reads: figures of the queues, with the keys and scopes of the other doors.

It imports what the doors share and the package's `metrics`. Start at `urls.py`.
"""
