"""The HTTP door ``/v0/topics``: queues and logs for workers in any language. Start at ``leases.py``."""
