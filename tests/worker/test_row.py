"""The row in which a worker says what it is."""

from typing import Any

import pytest

from django_leasequeue.worker import keeper as keeper_module
from django_leasequeue.worker import load_options
from django_leasequeue.worker.keeper import Keeper
from django_leasequeue.worker.state import WorkerState
from tests.worker.handlers import ScriptHandler


@pytest.mark.parametrize(("named", "before", "after"), [(["default"], ["default"], ["default"]), ([], [], ["a", "b"])])
def test_a_worker_that_has_not_read_the_queues_says_those_that_it_was_told(
    monkeypatch: pytest.MonkeyPatch, named: list[str], before: list[str], after: list[str]
) -> None:
    state = WorkerState(load_options(queues=named), "n", ScriptHandler())
    keeper, told = Keeper(state, lambda most: None), []

    def write(**columns: Any) -> None:
        told.append(columns["queues"])

    monkeypatch.setattr(keeper_module, "write_presence", write)
    monkeypatch.setattr(keeper.link, "run", lambda presence: False)
    keeper._write_worker_row()
    state.queues = after
    keeper._write_worker_row()
    assert told == [before, after]
