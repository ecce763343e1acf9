"""``docs/reference/python-api.md`` names everything that is public, with the parameters that it has."""

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

import django_leasequeue
from django_leasequeue import (
    BufferedQueue,
    ClaimedJob,
    Consumer,
    Heartbeat,
    NewJob,
    Queue,
    exceptions,
    signals,
    testing,
)
from django_leasequeue.compat import jobqueue, jqueue
from django_leasequeue.queue.consumer import Execution
from django_leasequeue.queue.enqueue import JobOptions
from django_leasequeue.queue.outcomes import Finished, JobStatus, Receipt
from django_leasequeue.testing import Harness, Ran, Seen
from django_leasequeue.worker.control import JobControl
from tests.support.documents import DOCS

TEXT = (DOCS / "reference/python-api.md").read_text(encoding="utf-8")
#: What the parts of this package use of each other.
INTERNAL = {*("beaten", "abort", "error", "find_step", "take_progress", "keep_progress", "on_lost")}
#: The page's sections: what is said of one class is not looked for in another.
SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name not in INTERNAL]


def signature(function: Any) -> str:
    """Return the parameters as the page shows them: without ``self`` and annotations."""
    whole = inspect.signature(function)
    parameters = [
        item.replace(annotation=inspect.Parameter.empty)
        for item in whole.parameters.values()
        if item.name not in ("self", "_cls")
    ]
    shown = str(whole.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r"=<object object at [^>]*>", "=<any>", shown)


def test_every_name_of_the_package() -> None:
    names = [name for name in dir(django_leasequeue) if name in django_leasequeue._HOMES]
    assert set(names) == {"BufferedQueue", "ClaimedJob", "Consumer", "Heartbeat", "Limit", "NewJob", "Queue"}
    assert [name for name in [*names, *testing._HOMES] if f"`{name}" not in TEXT and f" {name}" not in TEXT] == []


@pytest.mark.parametrize(
    ("kind", "section"),
    [
        (Queue, "Queue"), (BufferedQueue, "BufferedQueue"), (Heartbeat, "Heartbeat"), (Consumer, "Consumer"),
        (JobControl, "JobControl"), (Harness, "Testing"),
    ],
)  # fmt: skip
def test_every_method_with_its_parameters(kind: type, section: str) -> None:
    text = SECTIONS[section]
    missing = []
    for name in public(kind):
        member = inspect.getattr_static(kind, name)
        # A twin has no line of its own: it is called like the method that it is the twin of.
        if name.startswith("a") and hasattr(kind, name[1:]):
            assert inspect.signature(member).parameters == inspect.signature(getattr(kind, name[1:])).parameters
        elif callable(member):
            missing += [] if f"`{name}{signature(member)}`" in text else [f"{name}{signature(member)}"]
        elif f"`{name}`" not in text:
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("kind", [Queue, BufferedQueue, Heartbeat, Consumer, Harness])
def test_every_class_with_its_parameters(kind: type) -> None:
    assert f"`{kind.__name__}{signature(kind.__init__)}`" in TEXT  # type: ignore[misc]  # of the class, not of an instance


def test_every_option_of_a_job() -> None:
    assert f"`NewJob{signature(NewJob.__new__)}`" in TEXT
    assert [name for name in JobOptions.__annotations__ if f"| `{name}` |" not in TEXT] == []


@pytest.mark.parametrize(
    ("names", "section"),
    [
        (Receipt._fields, "Receipt"), (Finished._fields, "Queue"), (public(ClaimedJob), "ClaimedJob"),
        (public(JobStatus), "JobStatus"), ([item.name for item in fields(Execution)], "Consumer"),
        (Ran._fields, "Testing"), (Seen._fields, "Testing"),
    ],
)  # fmt: skip
def test_every_field(names: Any, section: str) -> None:
    assert [name for name in names if f"`{name}`" not in SECTIONS[section]] == []


def test_every_error_and_signal() -> None:
    errors = [name for name, kind in vars(exceptions).items() if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert [name for name in errors if f"`{name}`" not in SECTIONS["Errors"]] == []
    from django.dispatch import Signal

    sent = [name for name, value in vars(signals).items() if isinstance(value, Signal)]
    assert sent
    assert [name for name in sent if f"| `{name}` |" not in SECTIONS["Signals"]] == []


@pytest.mark.parametrize("module", [jqueue, jobqueue])
def test_every_name_of_the_facades(module: Any) -> None:
    text = SECTIONS["Other libraries' names"].split("\n\n")
    [part] = [part for part in text if module.__name__ in part]
    assert [name for name in module.__all__ if f"`{name}`" not in part] == []
