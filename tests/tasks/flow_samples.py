"""Tasks under limits and in workflows, and an oracle that counts what runs: files, no table of ours."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from django_leasequeue import tasks
from django_leasequeue.tasks import FailForGood, Limit, Outcome, chord, current_workflow, group, task
from tests.tasks import django_api
from tests.tasks.durable_tasks import control

#: The environment variable with the folder of the oracle.
FOLDER = "LEASEQUEUE_TEST_ORACLE"


class Run(NamedTuple):
    """One run as the oracle has it: times of the monotonic clock, which all processes of a machine share."""

    key: str
    value: int
    began: float
    ended: float


@dataclass
class Oracle:
    """Runs, each written as a line of a file by the process that ran it."""

    folder: Path

    def runs(self) -> list[Run]:
        """What ran and has ended, in the order of the beginnings."""
        lines = [line.split() for path in self.folder.glob("*.runs") for line in path.read_text("utf-8").splitlines()]
        found = [Run(key, int(value), float(began), float(ended)) for key, value, began, ended in lines]
        return sorted(found, key=lambda run: run.began)

    def most_at_once(self, key: str | None = None) -> int:
        """The highest number of runs that overlapped."""
        runs = [run for run in self.runs() if key in (None, run.key)]
        steps = sorted([*((run.began, 1) for run in runs), *((run.ended, -1) for run in runs)])
        return max(accumulate(step for _, step in steps), default=0)


@contextmanager
def watch(folder: Path) -> Iterator[Oracle]:
    """Have the tasks here write into a folder."""
    os.environ[FOLDER] = str(folder)
    try:
        yield Oracle(folder)
    finally:
        del os.environ[FOLDER]


def note(key: str, value: int, began: float) -> None:
    path = Path(os.environ[FOLDER]) / f"{os.getpid()}.runs"
    # One write of a short line to a file that is only appended to: lines of threads do not mix.
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{key} {value} {began:.6f} {time.monotonic():.6f}\n")


@task
def seen(key: str, value: int = 0, seconds: float = 0.02) -> int:
    """Run for a time, and have the oracle know of it."""
    began = time.monotonic()
    time.sleep(seconds)
    note(key, value, began)
    return value


@task(limit=Limit("customer:{key}", concurrency=1))
def for_customer(key: str, value: int = 0, seconds: float = 0.02) -> int:
    return seen.func(key, value, seconds)


@task
def double(value: int) -> int:
    return value * 2


@task
async def adouble(value: int) -> int:
    return value * 2


@task
def total(values: list[int | None]) -> int:
    note("total", len(values), time.monotonic())
    return sum(value or 0 for value in values)


@task
def given(*values: Any) -> list[Any]:
    return list(values)


@task
def outcomes(found: list[Outcome]) -> list[list[Any]]:
    return [list(outcome) for outcome in found]


@task(takes_context=True)
def given_with_context(context: Any, value: Any, more: int) -> list[Any]:
    return [context.attempt, value, more]


@task
def much(size: int) -> str:
    return "x" * size


@task
def length(text: str) -> int:
    return len(text)


@task
def fail_for_good(reason: str = "no") -> int:
    raise FailForGood(reason)


@task
def fail_once(folder: str) -> int:
    mark = Path(folder) / "failed"
    if mark.exists():
        return 5
    mark.touch()
    raise ValueError("the first time")


@task
def become(call: str, *args: Any) -> int:
    note("become", 0, time.monotonic())
    found: Any = {"double": double, "fail": fail_for_good, "become": become, "sleep": sleeper}.get(call)
    if found is not None:
        control().replace(found.s(*args))
    if call == "chain":
        control().replace(double.s(*args) | double.s())
    if call == "group":
        control().replace(group(double.s(arg) for arg in args))
    control().replace(chord([double.s(arg) for arg in args], total.s()) if call == "chord" else call)
    return 0


@task
async def abecome(value: int) -> int:
    return control().replace(double.s(value))  # type: ignore[no-any-return]


@task
def sleeper() -> None:
    control().sleep("long", hours=1)


@task
def deeper(depth: int) -> int:
    if depth:
        control().replace(deeper.s(depth - 1))
    return 7


@task(atomic=True)
def become_atomic() -> None:
    control().replace(double.s(1))


@task
def excuse(failed: Outcome, word: str) -> list[Any]:
    return [failed.ok, failed.error_type, failed.error, word]


@task
def add_elsewhere() -> str | None:
    """Add steps to this one's workflow, from a queue that is not the usual one."""
    workflow = current_workflow()
    for name, options in (("inherits", {}), ("told", {"queue_name": "default"})):
        workflow.add(given.using(**options).s(name), name=name)
    workflow.add(at_home.s())
    workflow.add(at_home.get_result(at_home.enqueue().id).task.s(), name="read")
    workflow.add(django_api.nothing.s(), name="of Django")
    workflow.add(django_api.nothing.using(queue_name="default").s(), name="of Django, told")
    return str(workflow.enqueue().id)


@task(queue_name="default")
def at_home() -> None:
    """A task whose declaration names the usual queue."""


@task
def sorry(workflow_id: str, word: str = "") -> list[Any]:
    return [workflow_id, word, tasks.get_workflow_result(workflow_id).status.failed]


@task
def spread(count: int, fails: int = 0) -> int:
    """Add as many jobs to this one's workflow, one after all of them, and one after this."""
    workflow = current_workflow()
    parts = [workflow.add(double.s(number)) for number in range(count)]
    parts += [workflow.add(fail_for_good.s("no")) for _ in range(fails)]
    workflow.add(given.s("all"), after=parts, allow_failures=fails > 0)
    workflow.add(given.s("this"), after=workflow.current)
    workflow.add(chord([double.s(1), double.s(2)], given.s("chord")))
    assert workflow.enqueue().id == workflow.id == workflow.result.id
    return count


@task
async def aspread(value: int) -> int:
    """Add a job that comes after the first one, which has ended, and one after that."""
    workflow = await tasks.acurrent_workflow()
    first = (await workflow.result.amembers())[0]
    one = workflow.add(given.s("first"), after=workflow.member(first.id or ""))
    workflow.add(given.s("second"), after=[one, workflow.current])
    await workflow.aenqueue()
    return value + 1


@task(takes_context=True)
def grow(context: Any, what: str) -> str:
    """Do with this one's workflow what does not go."""
    workflow = current_workflow()
    if what == "twice":
        workflow.add(double.s(1))
        workflow.enqueue()
        workflow.enqueue()
    elif what == "other":
        workflow.add(double.s(1), after=current_workflow().current)
    elif what == "id":
        workflow.member("nonsense")
    elif what == "strange":
        workflow.add(double.s(), after=workflow.member(double.enqueue(1).id))
        workflow.enqueue()
    elif what == "raise":
        workflow.add(double.s(1))
        workflow.enqueue()
        if context.attempt == 1:
            raise ValueError("after it")
        return workflow.name
    else:
        workflow.enqueue()
    return what
