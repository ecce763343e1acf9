"""The audit is written once, whoever writes."""

from collections.abc import Callable
from typing import Any

import pgtrigger
import psycopg
import pytest
from django.db import IntegrityError, transaction

from django_leasequeue.engine import audit
from django_leasequeue.models import BulkOperation, OperatorAction
from tests.admin.letters import start
from tests.support.rows import rows

pytestmark = pytest.mark.django_db


def refused(constraint: str, act: Callable[[], Any]) -> None:
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        act()
    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert caught.value.__cause__.diag.constraint_name == constraint


def test_nothing_changes_or_removes_a_line() -> None:
    line = audit.write("retry", username="ann", seqs=range(1, 300), counts={"done": 1}, reason="why")
    assert line.seqs == list(range(1, 101))
    line.reason = "another"
    refused("leasequeue_action_append_only", line.save)
    refused("leasequeue_action_append_only", OperatorAction.objects.all().delete)
    refused("leasequeue_action_append_only", lambda: OperatorAction.objects.update(username="bob"))
    assert OperatorAction.objects.get().reason == "why"
    with pgtrigger.ignore("leasequeue.OperatorAction:append_only"):
        OperatorAction.objects.all().delete()
    assert not OperatorAction.objects.exists()


@pytest.mark.parametrize(("change", "constraint"), [
    ({"rate": 0}, "leasequeue_operation_rate"), ({"jitter_ms": -1}, "leasequeue_operation_jitter"),
    ({"kind": "redrive"}, "leasequeue_operation_target"), ({"kind": "discard"}, "leasequeue_operation_reason"),
])  # fmt: skip
def test_an_operation_makes_sense(change: dict[str, Any], constraint: str) -> None:
    start("retry")
    refused(constraint, lambda: rows(BulkOperation).update(**change))


def test_one_active_operation_of_a_kind_for_all_queues() -> None:
    made = start("retry")

    def again() -> None:
        rows(BulkOperation).create(kind="retry", frozen_at=made.frozen_at, created_at=made.created_at)

    refused("leasequeue_operation_one_active", again)
    rows(BulkOperation).update(state="done")
    again()
