"""The server for JDBC: it holds a copy of the events, asks for its password, and is gone afterwards."""

from pathlib import Path

import psycopg
import pytest

from django_leasequeue.models import EventKind
from testproject.bench import tcp_server
from tests.spark.helpers import NOON, event

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
def test_a_copy_of_the_events_on_tcp(tmp_path: Path, test_dsn: str) -> None:
    with psycopg.connect(test_dsn, autocommit=True) as database:
        for seq in (1, 2):
            event(database, queue_id=7, seq=seq, kind=EventKind.CLAIMED, node="n'1", detail={"a": "ü"})
    with tcp_server.with_events("default", tmp_path) as place:
        assert place["host"].startswith("127.")
        with psycopg.connect(**place) as connection:
            rows = connection.execute(
                "SELECT seqs[1], txid, occurred_at, kind, node, detail->>'a' FROM leasequeue_leaseevent ORDER BY id"
            ).fetchall()
        assert rows == [(seq, 1, NOON, int(EventKind.CLAIMED), "n'1", "ü") for seq in (1, 2)]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(**{**place, "password": "guessed"})
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(**place)
