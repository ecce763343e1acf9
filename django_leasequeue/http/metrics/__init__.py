"""The page that Prometheus reads: figures of the queues, with the keys and scopes of the other doors."""
