"""Options of a backend (``TASKS[alias]["OPTIONS"]``), their system checks, and the queues that they declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.db import connections

from .. import conf
from ..engine.queues import presets, routing
from ..engine.queues.presets import Declaration
from ..exceptions import InvalidOption
from .api import TASK_MAX_PRIORITY, TASK_MIN_PRIORITY, task_backends

#: Keys that ``OPTIONS`` may have.
_KEYS = ("project", "database", "preset", "queues")


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """``OPTIONS`` of one backend; ``None`` is what ``LEASEQUEUE`` says; ``listed`` are its ``QUEUES``, none for any."""

    project: str = ""
    database: str | None = None
    given_preset: str | None = None
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, options: Any, listed: Any) -> BackendOptions:
        """Return the options of ``OPTIONS`` and ``QUEUES``. Unknown keys are left out; ``check`` reports them."""
        given = options if isinstance(options, Mapping) else {}
        known = {"given_preset" if key == "preset" else key: given[key] for key in _KEYS if key in given}
        return cls(**known, listed=frozenset(name for name in listed if isinstance(name, str)))

    @property
    def preset(self) -> str:
        """The bundle of options that a new queue begins with."""
        return self.given_preset or conf.settings.DEFAULT_PRESET

    def declaration(self, queue: str) -> tuple[str, dict[str, Any]]:
        """Return preset and options that this backend gives a queue; ``LEASEQUEUE["QUEUES"]`` comes before them."""
        options = dict(self.queues.get(queue, {}))
        return options.pop("preset", self.preset), options


def _error(number: int, text: str, hint: str | None = None) -> checks.Error:
    return checks.Error(text, hint=hint, id=f"leasequeue.tasks.E{number:03}")


def _warning(number: int, text: str, hint: str) -> checks.Warning:
    return checks.Warning(text, hint=hint, id=f"leasequeue.tasks.W{number:03}")


def check(alias: str, params: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    """Check one backend in ``TASKS`` without asking the database."""
    where = f"TASKS[{alias!r}]"
    if not apps.is_installed("django_leasequeue"):
        hint = "Add 'django_leasequeue' and 'pgtrigger' to INSTALLED_APPS and run migrate."
        yield _error(1, f"{where} uses LeaseQueueBackend, but django_leasequeue is not installed.", hint)
        return
    if conf.problems():
        return  # the check of LEASEQUEUE reports them
    options = params.get("OPTIONS", {})
    if not isinstance(options, Mapping):
        yield _error(2, f"{where}['OPTIONS'] must be a dict; it is {options!r}.")
        options = {}
    for key in options:
        if key not in _KEYS:
            hint = f"The options are {', '.join(_KEYS)}. Options of a queue belong into 'queues'."
            yield _error(2, f"{where}['OPTIONS'][{key!r}] is not an option of LeaseQueueBackend.", hint)
    yield from _check_database(where, options)
    try:
        presets.check_project(options.get("project", ""))
    except InvalidOption as error:
        yield _error(4, f"{where}['OPTIONS']['project']: {error}")
    preset = options.get("preset", conf.settings.DEFAULT_PRESET)
    if preset not in presets.PRESETS:
        yield _unknown_preset(f"{where}['OPTIONS']", preset)
    yield from _check_queues(where, params.get("QUEUES", ["default"]), options)
    if "ENQUEUE_ON_COMMIT" in params:
        hint = "A task is enqueued in the caller's transaction: it is there if that commits, and never before."
        yield _warning(1, f"{where}['ENQUEUE_ON_COMMIT'] has no effect.", hint)


def _check_database(where: str, options: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    alias = options.get("database")
    if alias is None:
        return
    if not isinstance(alias, str) or alias not in django_settings.DATABASES:
        hint = f"The aliases are {', '.join(django_settings.DATABASES)}."
        yield _error(3, f"{where}['OPTIONS']['database'] is {alias!r}, which is not an alias in DATABASES.", hint)
    elif connections[alias].vendor != "postgresql":
        yield _error(3, f"{where}['OPTIONS']['database'] is {alias!r}, which is not PostgreSQL.")


def _unknown_preset(where: str, preset: Any) -> checks.Error:
    return _error(5, f"{where}['preset'] is {preset!r}.", f"The presets are {', '.join(presets.PRESETS)}.")


def _check_queues(where: str, listed: Any, options: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    if isinstance(listed, (str, bytes)) or not isinstance(listed, (list, tuple, set, frozenset)):
        yield _error(6, f"{where}['QUEUES'] must be a list of names, such as ['default', 'mail']; it is {listed!r}.")
        listed = []
    plain = []
    for name in listed:
        try:
            presets.check_name(name)
        except InvalidOption as error:
            yield _error(6, f"{where}['QUEUES']: {error}")
        else:
            plain.append(name)
    preset = options.get("preset", conf.settings.DEFAULT_PRESET)
    declared = options.get("queues", {})
    if not isinstance(declared, Mapping):
        yield _error(7, f"{where}['OPTIONS']['queues'] must be a dict of dicts, one a queue; it is {declared!r}.")
        return
    for name, given in declared.items():
        if listed and name not in listed:
            hint = f"Add it to {where}['QUEUES'], or take it out of 'queues'."
            yield _error(8, f"{where}['OPTIONS']['queues'][{name!r}] is not one of the backend's QUEUES.", hint)
        yield from _check_queue(f"{where}['OPTIONS']['queues'][{name!r}]", name, given, preset)
    # Those without options of their own are made with the preset, unless the settings declare them.
    elsewhere = conf.settings.QUEUES if options.get("project", "") == "" else {}
    for name in plain:
        if name not in declared and name not in elsewhere:
            yield from _check_queue(f"{where}['QUEUES']: {name!r}, with preset {preset!r}", name, {}, preset)
    if not listed:
        yield from _check_queue(f"{where}: a queue with preset {preset!r}", "default", {}, preset)


def _check_queue(where: str, name: Any, given: Any, preset: Any) -> Iterator[checks.CheckMessage]:
    if not isinstance(given, Mapping):
        yield _error(7, f"{where} must be a dict of options; it is {given!r}.")
        return
    own = dict(given)
    preset = own.pop("preset", preset)
    if preset not in presets.PRESETS:
        if "preset" in given:
            yield _unknown_preset(where, preset)
        return
    try:
        presets.check_name(name)
        config = presets.complete(preset, name, **own)
    except (InvalidOption, TypeError) as error:
        yield _error(7, f"{where}: {error}")
        return
    if config["type"] != "queue":
        yield _error(9, f"{where} declares a log: its records are never run.", "Leave 'type' out.")
        return
    if config["result_ttl_ms"] == 0:
        hint = "Set result_ttl_ms, in milliseconds; silence this check if results are not used."
        yield _warning(2, f"{where}: result_ttl_ms is 0, so that get_result() does not find finished tasks.", hint)
    order, low, high = config["priority_order"], config["priority_min"], config["priority_max"]
    if order != "desc" or low > TASK_MIN_PRIORITY or high < TASK_MAX_PRIORITY:
        yield _warning(
            3,
            f"{where}: priority_order is {order!r}, from {low} to {high}, so that tasks with a higher priority do not"
            " always run first.",
            f"Set priority_order to 'desc', priority_min to {TASK_MIN_PRIORITY} and priority_max to"
            f" {TASK_MAX_PRIORITY}; silence this check if all tasks have the same priority.",
        )


def of_backends() -> list[Declaration]:
    """Return the queues of every backend of ours, with the options that it gives them; one without a name for any."""
    made = []
    for backend in task_backends.all():
        config = getattr(backend, "config", None)
        if not isinstance(config, BackendOptions):
            continue
        for name in sorted(config.listed | set(config.queues)):
            preset, options = config.declaration(name)
            named = "preset" in config.queues.get(name, ())
            database = config.database or routing.alias_of(config.project, name, adding=True)
            made.append(Declaration(database, config.project, name, preset, options, named))
        if not config.listed:
            made.append(Declaration(config.database or "", config.project, "", config.preset))
    return made
