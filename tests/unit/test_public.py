"""The public names and their signatures, as ``public.txt`` has them: a change of it is a change for every host.

After a change on purpose: ``UPDATE_SNAPSHOTS=1 make test ARGS=tests/unit/test_public.py``, and a line in CHANGELOG.md.
"""

import enum
import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.db.models import Model
from django.dispatch import Signal

from django_leasequeue import conf
from django_leasequeue.conf.queue_options import OPTIONS
from django_leasequeue.engine.queues.presets import PRESETS
from django_leasequeue.enums import EventKind
from tests.support.sections import sections

SNAPSHOT = Path(__file__).with_name("public.txt")
MODULES = [
    "django_leasequeue", "django_leasequeue.tasks", "django_leasequeue.models", "django_leasequeue.exceptions",
    "django_leasequeue.signals", "django_leasequeue.testing", "django_leasequeue.client",
]  # fmt: skip


def page(name: str) -> str:
    return (Path(settings.BASE_DIR) / "docs/reference" / name).read_text(encoding="utf-8")


def public_names(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or getattr(module, "_HOMES", None)
    if names is None:
        names = [
            name for name, value in vars(module).items()
            if getattr(value, "__module__", "").startswith(module.__name__) or isinstance(value, Signal)
        ]  # fmt: skip
    return sorted(name for name in names if not name.startswith("_"))


def described(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Signal):
        yield f"{name}: signal"
    elif not inspect.isclass(value):
        yield f"{name}{signature(value)}"
    elif issubclass(value, BaseException):
        yield f"{name}: error, a {' and a '.join(base.__name__ for base in value.__bases__)}"
    elif issubclass(value, Model):
        yield f"{name}: model"
        yield from sorted(f"{name}.{field.name}: field" for field in value._meta.get_fields())
        yield from sorted(f"{name}.objects.{each}" for each in methods(type(value._default_manager)))
    elif issubclass(value, enum.Enum):
        yield f"{name}: {', '.join(member.name for member in value)}"
    else:
        yield f"{name}{signature(value)}"
        yield from sorted(f"{name}.{each}{signature(getattr(value, each))}" for each in methods(value))


def methods(kind: type) -> set[str]:
    ours = [each for each in kind.__mro__ if each.__module__.startswith(("django_leasequeue", "leasequeue_client"))]
    return {name for each in ours for name in vars(each) if not name.startswith("_")}


def signature(value: Any) -> str:
    if not callable(value):
        return ""
    try:
        found = inspect.signature(value)
    except ValueError:
        return "(...)"
    # Names, kinds and defaults: annotations read differently in other versions of Python.
    plain = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
    written = str(found.replace(parameters=plain, return_annotation=found.empty))
    return re.sub(r"<[\w. ]+ at 0x\w+>", "...", written)


def public() -> Iterator[str]:
    for path in MODULES:
        yield f"# {path}"
        module = importlib.import_module(path)
        for name in public_names(module):
            if path == "django_leasequeue.models" and f"`{name}`" not in page("models.md"):
                continue  # a table of the engine's own
            yield from described(name, getattr(module, name))
    yield "# settings"
    for section, kind in sections().items():
        yield from sorted(f"{section}.{key}" for key in conf.keys(kind))
    yield "# options of queues, presets, kinds of events"
    yield from (", ".join(sorted(OPTIONS)), ", ".join(sorted(PRESETS)), ", ".join(kind.label for kind in EventKind))
    yield "# commands"
    for name, app in sorted(get_commands().items()):
        if app == "django_leasequeue":
            parser = load_command_class(app, name).create_parser("manage.py", name)
            yield f"{name} {' '.join(sorted(options(parser)))}"


def options(parser: Any) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for name, part in action.choices.items():
                yield from (f"{name}:{option}" for option in options(part))
        elif action.help != "==SUPPRESS==":
            own = [option for option in action.option_strings if option.startswith("--")]
            yield from (option for option in own if option not in DJANGOS)


#: Django gives them to each command.
DJANGOS = {
    "--help", "--version", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color", "--skip-checks",
    "--verbosity",
}  # fmt: skip


def test_what_is_public_is_as_it_was() -> None:
    found = "\n".join(public()) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(found, encoding="utf-8")
    assert found == SNAPSHOT.read_text(encoding="utf-8"), (
        "What hosts may use has changed. On purpose: UPDATE_SNAPSHOTS=1, and a line in CHANGELOG.md."
    )


def test_the_page_names_what_the_snapshot_holds() -> None:
    assert [path for path in MODULES if f"`{path}`" not in page("stability.md")] == []


def test_each_name_that_warns_has_a_line_in_the_table_of_deprecations() -> None:
    package = Path(settings.BASE_DIR) / "django_leasequeue"
    sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "exceptions.py"]
    warned = sum(source.count(", DjangoLeasequeueDeprecation1xWarning") for source in sources)
    (table,) = re.findall(r"\| deprecated \|.*?\n\n", page("stability.md"), re.DOTALL)
    assert len(re.findall(r"^\| `", table, re.MULTILINE)) == warned
