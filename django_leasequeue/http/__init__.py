"""The HTTP doors: ``topics`` (``/v0``), ``zaqar`` (``/v1``), ``triage`` (for operators), ``metrics`` (``/metrics``).

Here stands what the doors share; each door is a package that imports from here and from the engine, none from another
door. The admin and the commands import ``access``, a host that and the doors' URLs and ``asgi``.

Start at ``views.ApiView``: one way in (``auth``, ``access``), one way to read a body
(``payload``, ``fields``), one way out (``errors``). Then ``topics/leases.py``: a claim from its body to its answer; all
of an operation is at its handler (``schema.endpoint``): scopes, types, errors, parameters.
"""
