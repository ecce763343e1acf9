"""Queues: what they are, how they are declared, how they are doing."""
