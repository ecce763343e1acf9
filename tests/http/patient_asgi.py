"""The test project's ASGI application with every backstop an hour long: what comes, comes because somebody said so."""

from importlib import import_module

from testproject.asgi import application

# Modules with views: they can be imported once Django is set up.
for module, names in {
    "hub": ("BACKSTOP", "POLL", "LOOK"), "watching": ("BACKSTOP", "POLL", "READ_BACKSTOP"),
}.items():  # fmt: skip
    for name in names:
        setattr(import_module(f"django_leasequeue.http.topics.{module}"), name, 3600.0)

__all__ = ["application"]
