"""Looking at what a benchmark left behind."""

from django.db import connection

from django_leasequeue.models import (
    Attempt,
    Claim,
    DeadLetter,
    Delayed,
    EmittedEvent,
    JobResult,
    JobStep,
    LeaseEvent,
    Queue,
    QueueFloor,
    QueueRank,
    Ready,
    Record,
    StoredJob,
    TopicState,
    Worker,
)
from testproject.bench.options import PROJECT


def assert_nothing_left() -> None:
    assert not Queue.objects.filter(project=PROJECT).exists()
    assert not Worker.objects.filter(project=PROJECT).exists()
    places = (Ready, Delayed, Claim, DeadLetter, Record, JobResult)
    for model in (StoredJob, *places, Attempt, LeaseEvent, QueueFloor, QueueRank, TopicState, JobStep, EmittedEvent):
        assert not model.objects.exists()
    assert [name for name in connection.introspection.table_names() if name.startswith("leasequeue_bench")] == []
