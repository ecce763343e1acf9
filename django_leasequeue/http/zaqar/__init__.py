"""The HTTP door ``/v1/queues``: OpenStack Zaqar v1 on the same engine and tables."""
