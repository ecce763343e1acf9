"""Filters and tags for templates.

``leasequeue.py`` is for the host's templates; those of the admin use ``leasequeue_admin.py``.
"""
