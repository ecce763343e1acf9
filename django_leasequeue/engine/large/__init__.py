"""Payloads, bodies and results that are large: they stand in a storage of Django's ``STORAGES``."""
