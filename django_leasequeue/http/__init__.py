"""The HTTP APIs: ``topics`` (``/v0``), ``zaqar`` (``/v1``), ``triage`` (for operators), ``metrics`` (``/metrics``).

Here stands what the APIs share; no API imports from another one. Start at ``views.ApiView``: one way in (``auth``,
``access``), one to read a body (``payload``, ``fields``), one out (``errors``). Then ``topics/leases.py``: all of an
operation is at its handler (``schema.endpoint``): scopes, types, errors, parameters.
"""
