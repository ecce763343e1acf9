"""The modules that a stored name of a task may import: those below ``TASK_MODULES``, and no others."""

from __future__ import annotations

from django.apps import apps

from .. import conf

#: Modules in which this process has declared tasks: they are imported already.
declared: set[str] = set()


def roots() -> tuple[str, ...]:
    """Return the packages and modules that workers import tasks from."""
    return conf.settings.TASK_MODULES or tuple(config.name for config in apps.get_app_configs())


def importable(module: str) -> bool:
    """Return whether a task's name may import a module."""
    return module in declared or any(module == root or module.startswith(f"{root}.") for root in roots())


def refusal(path: str) -> str:
    """Return the text of the error for a task whose module is none of those."""
    if conf.settings.TASK_MODULES:
        where, then = "LEASEQUEUE['TASK_MODULES']", "Name its package there."
    else:
        where, then = "the installed apps", "Add its app to INSTALLED_APPS."
    return f"The task {path!r} is not imported: it is not below {where}. {then}"
