"""Payloads, bodies and results that are large: they stand in a storage of Django's ``STORAGES``.

Jobs, leases and results import it where a value is above the limit. Start at `payloads.py`.
"""
