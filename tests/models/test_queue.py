"""Queues as rows of a model: what is written goes through the engine."""

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.core import serializers
from django.db import DatabaseError, IntegrityError, NotSupportedError, connection, transaction
from django.db.models import F
from django.db.models.signals import post_delete, pre_save

from django_leasequeue.conf.queue_options import OPTIONS
from django_leasequeue.exceptions import InvalidOption, WrittenByEngine
from django_leasequeue.models import Claim, Queue, QueueRank, StoredJob, TopicState
from tests.engine.helpers import claim, one, put
from tests.support.heard import connected

pytestmark = pytest.mark.django_db


def test_a_queue_that_was_created_gives_its_jobs_and_names_are_taken_once_a_project() -> None:
    queue = Queue.objects.create(name="mail", lease_ms=1, metadata={"team": "shop"})
    queue.refresh_from_db()
    assert (queue.lease_ms, queue.metadata) == (100, {"team": "shop"})
    for model in (QueueRank, TopicState):
        assert model.objects.filter(queue_id=queue.pk).exists()
    assert claim(1, queue="mail") == []
    (seq,) = put(1, queue="mail")
    assert one("mail").seq == seq
    with pytest.raises(IntegrityError, match="'mail'"), transaction.atomic():
        Queue.objects.create(name="mail")
    assert Queue.objects.get_or_create(name="mail")[1] is False
    assert Queue.objects.get_or_create(name="mail", project="acme")[1] is True
    queue, made = Queue.objects.update_or_create(name="mail", project="", defaults={"max_deliveries": 3})
    assert (made, queue.max_deliveries) == (False, 3)


def test_options_are_changed_and_saved() -> None:
    sent: list[Any] = []
    with connected(pre_save, lambda instance, **_: sent.append(instance), sender=Queue):
        queue = Queue.objects.create(name="mail", lease_ms=5_000)
        queue.lease_ms, queue.dead_letter = 6_000, "graveyard"
        queue.save(update_fields=["lease_ms"])
        assert (queue.lease_ms, queue.dead_letter) == (6_000, "graveyard")
        assert Queue.objects.values_list("lease_ms", "dead_letter").get() == (6_000, None)
        queue.save()
        assert Queue.objects.values_list("lease_ms", "dead_letter").get() == (6_000, "graveyard")
        queue.paused_at = queue.updated_at
        queue.save()
        put(1, queue="mail")
        assert claim(1, queue="mail") == []
        queue.paused_at = None
        queue.save()
    assert len(claim(1, queue="mail")) == 1
    assert sent == [queue] * 5


@pytest.mark.parametrize("values", [
    {"name": ".x"}, {"name": ""}, {"name": "x", "project": "a\0"}, {"name": "x", "lease_ms": "soon"},
    {"name": "x", "backoff": "quickly"}, {"name": "x", "dead_letter": "x"},
    {"name": "x", "priority_min": 5, "priority_max": 4}, {"name": "x", "concurrency": 2, "claim_jitter_ms": 5},
    {"name": "x", "cap_records": -1},
], ids=repr)  # fmt: skip
def test_the_engine_checks_names_and_options(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption), transaction.atomic():
        Queue.objects.create(**values)
    assert not Queue.objects.exists()


@pytest.mark.parametrize("change", [
    {"name": "post"}, {"project": "acme"}, {"lease_ms": "x"}, {"dead_letter": "mail"}, {"type": "log"},
], ids=repr)  # fmt: skip
def test_what_a_queue_cannot_become(change: dict[str, Any]) -> None:
    queue = Queue.objects.create(name="mail")
    for field, value in change.items():
        setattr(queue, field, value)
    with pytest.raises(Exception, match=r"cannot be changed|must be|cannot change"), transaction.atomic():
        queue.save()
    assert Queue.objects.filter(name="mail", project="", type="queue", lease_ms=30_000, dead_letter=None).exists()


def test_many_are_updated_at_once() -> None:
    Queue.objects.bulk_create([Queue(name="a"), Queue(name="b", lease_ms=7_000)])
    assert Queue.objects.update(max_deliveries=4) == 2
    assert Queue.objects.filter(name="b").update(lease_ms=F("lease_ms") + 1_000, durability="memory") == 1
    assert Queue.objects.values_list("lease_ms", "max_deliveries", "durability").get(name="b") == (8_000, 4, "memory")
    for wrong in ({"name": "c"}, {"dead_lettered": 0}, {"paused_at": None}, {"backoff": "x"}, {"lease_ms": "1"}):
        with pytest.raises(InvalidOption):
            Queue.objects.update(**wrong)
    with pytest.raises(InvalidOption, match=r"these options: .*queue_concurrency"), transaction.atomic():
        Queue.objects.update(concurrency=5, claim_jitter_ms=100)
    with pytest.raises(IntegrityError), transaction.atomic():
        Queue.objects.bulk_create([Queue(name="c"), Queue(name="a")])
    assert Queue.objects.count() == 2
    with pytest.raises(NotSupportedError):
        Queue.objects.bulk_create([Queue(name="a")], ignore_conflicts=True)


def test_nothing_of_a_deleted_queue_is_left() -> None:
    queue = Queue.objects.create(name="mail", result_ttl_ms=60_000)
    put(3, queue="mail")
    put(1, queue="mail", delay_ms=60_000)
    one("mail")
    gone: list[Any] = []
    with connected(post_delete, lambda instance, **_: gone.append(instance), sender=Queue):
        assert queue.delete() == (1, {"leasequeue.Queue": 1})
    assert gone == [queue]
    assert queue.pk is None
    for model in (Queue, StoredJob, Claim, QueueRank, TopicState):
        assert not model.objects.exists(), model
    Queue.objects.bulk_create([Queue(name="a"), Queue(name="b")])
    put(2, queue="a")
    assert Queue.objects.filter(name__in=["a", "b"]).delete() == (2, {"leasequeue.Queue": 2})
    assert not StoredJob.objects.exists()
    with pytest.raises(ValueError, match="not saved"):
        queue.delete()
    with pytest.raises(DatabaseError, match="not there"):
        Queue(pk=5, name="x").save(update_fields=["lease_ms"])


def test_fixtures_hold_queues_by_their_names() -> None:
    Queue.objects.create(name="mail", lease_ms=5_000)
    Queue.objects.create(name="post", type="log")
    text = serializers.serialize("json", Queue.objects.all())
    Queue.objects.get(name="post").delete()
    Queue.objects.update(lease_ms=9_000)
    for found in serializers.deserialize("json", text):
        found.save()
    found = sorted(Queue.objects.values_list("name", "type", "lease_ms"))
    assert found == [("mail", "queue", 5_000), ("post", "log", 30_000)]
    put(1, queue="mail")
    assert len(claim(1, queue="mail")) == 1


def of_the_engine() -> list[Any]:
    """Every model of the app but those that a host, an operator or the lake writes."""
    written = {"Queue", "ApiKey", "SavedFilter", "RecurringTask", "OperatorAction"}
    found = apps.get_app_config("leasequeue").get_models()
    return [model for model in found if model.__name__ not in written and not model.__name__.startswith("Lake")]


@pytest.mark.parametrize("model", of_the_engine(), ids=lambda model: model.__name__)
@pytest.mark.parametrize("write", [
    lambda model: model.objects.create(), lambda model: model().save(), lambda model: model().delete(),
    lambda model: model.objects.bulk_create([model()]), lambda model: model.objects.update(),
    lambda model: model.objects.all().delete(), lambda model: model._base_manager.update(),
    lambda model: model._base_manager.all().delete(),
    lambda model: next(iter(serializers.deserialize("python", [fixture(model)]))).save(),
])  # fmt: skip
def test_what_the_engine_writes_is_read_only(model: Any, write: Callable[[Any], object]) -> None:
    with pytest.raises(WrittenByEngine, match=model.__name__):
        write(model)


def fixture(model: Any) -> dict[str, Any]:
    pk = [1] * len(model._meta.pk_fields)
    return {"model": model._meta.label_lower, "pk": pk if len(pk) > 1 else 1, "fields": {}}


def test_the_table_of_options_is_that_of_the_columns() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, CASE WHEN data_type LIKE 'character%%' THEN 'text' ELSE data_type END"
            " FROM information_schema.columns WHERE table_name = 'leasequeue_queue'"
        )
        columns = dict(cursor.fetchall())
    words = {"int": "integer", "bool": "boolean"}
    apart = {"id", "project", "name", "paused_at", "created_at", "updated_at"}
    apart |= {"dead_lettered", "floors_mended", "holds_tasks"}
    assert {name: words.get(option.column, option.column) for name, option in OPTIONS.items()} == {
        name: kind for name, kind in columns.items() if name not in apart
    }
    for name, option in OPTIONS.items():
        assert Queue._meta.get_field(name).get_default() == option.default, name
        assert option.kind != "integer" or option.low <= option.default <= option.high, name
        assert option.choices is None or option.default in option.choices.values, name
