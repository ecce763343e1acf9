"""The lease log's partitions and numbers, as tests need them."""

from django_leasequeue.engine import partitions
from django_leasequeue.engine.pool import connect
from tests.engine.helpers import run

#: Where the partitions begin that the migration makes.
FIRST = (0, 500_000, 1_000_000)


def put_back() -> None:
    """Make the lease log as the migration made it: empty."""
    run("TRUNCATE leasequeue_leaseevent")
    with connect("default") as own:
        for partition in partitions.read_layout(own).partitions:
            if partition.low not in FIRST:
                own.execute(f"DROP TABLE {partition.name}")
        for low in FIRST:
            own.execute(
                f"CREATE TABLE IF NOT EXISTS leasequeue_leaseevent_p{low} PARTITION OF leasequeue_leaseevent"
                f" FOR VALUES FROM ({low}) TO ({low + 500_000}) WITH (toast_tuple_target = 8160)"
            )
    run("SELECT setval('leasequeue_leaseevent_id_seq', 1)")


def drawn(number: int) -> None:
    run(f"SELECT setval('leasequeue_leaseevent_id_seq', {number})")
