"""The page that Prometheus reads: figures of the queues, with the keys and scopes of the other APIs.

It imports what the APIs share and the package's `metrics`. Start at `urls.py`.
"""
