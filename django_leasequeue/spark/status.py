"""The lake as its database knows it: consumers and their lag, the horizon's age, the archive. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.db.models import Count, Sum
from django.utils import timezone

from ..engine.pool import connect
from ..engine.runner import ConnectionExecutor
from ..models import LakeConsumer, LakeFigure, LakeSlice


class HorizonAge(NamedTuple):
    """The end up to which the lease log may be read: the age and the owner of the oldest running transaction."""

    horizon: int
    seconds: float
    application: str


def horizon_age(using: str = "default") -> HorizonAge:
    """Return the age of the horizon: a slow writer anywhere in the cluster delays every reader by so much."""
    connection = connect(using)
    try:
        executor = ConnectionExecutor(connection)
        return HorizonAge(*executor.fetch("lake/horizon_age", {})[0])
    finally:
        connection.close()


def lines(using: str = "default") -> Iterator[str]:
    """Yield the status as lines of text."""
    age = horizon_age(using)
    yield f"horizon: transaction {age.horizon}, {age.seconds:.1f} s old" + (
        f" ({age.application})" if age.seconds else ""
    )
    now = timezone.now()
    for consumer in LakeConsumer.objects.using(using).order_by("name"):
        state = "GIVEN UP by retention" if consumer.overtaken_at else "at"
        behind = max(0, age.horizon - 1 - consumer.txid)
        yield (
            f"consumer {consumer.name}: {state} transaction {consumer.txid}, {behind} behind,"
            f" seen {(now - consumer.seen_at).total_seconds():.0f} s ago"
        )
    for row in (
        LakeSlice.objects.using(using).values("state").annotate(n=Count("pk"), rows=Sum("rows")).order_by("state")
    ):
        yield f"archive: {row['n']} slices {row['state']}, {row['rows'] or 0} events"
    newest = LakeFigure.objects.using(using).order_by("-computed_at").first()
    if newest is not None:
        yield f"figures: computed {(now - newest.computed_at).total_seconds():.0f} s ago"
