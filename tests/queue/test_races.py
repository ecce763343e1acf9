"""What two connections do to one job at the same moment."""

from typing import Any

import psycopg
import pytest

from django_leasequeue import engine
from django_leasequeue.engine.jobs import results
from tests.engine.helpers import kept_waiting, open_transaction

pytestmark = pytest.mark.django_db(transaction=True)


def held(unusual: bool, queue: str) -> tuple[engine.LeasedJob, Any]:
    """Claim a new job; return it with the operation that ends it: an unusual one by the statement that looks at it."""
    engine.run(engine.enqueue(queue, [engine.NewJob(**({"result_ttl_ms": 2_000} if unusual else {}))]))
    (job,) = engine.run(engine.claim(queue, "worker"))
    return job, engine.finish([engine.Ending(job.seq, job.token)], "worker")


def meet(one: Any, other: Any) -> Any:
    """Do one thing, and beside it another that waits for the end of its transaction; return what that got."""
    with open_transaction() as first:
        first.run(one)
        with kept_waiting(lambda own: own.run(other)) as answer:
            first.connection.commit()
        return answer.result()


@pytest.mark.parametrize("unusual", [False, True])
def test_who_joins_while_the_job_ends_is_told_or_too_late(test_dsn: str, unusual: bool) -> None:
    """An ending that waits for the lock of a join tells its channel; a join that waits for an ending finds nothing."""
    engine.run(engine.create("joined", preset="jobqueue", result_ttl_ms=0))
    with psycopg.connect(test_dsn, autocommit=True) as listener:
        listener.execute("LISTEN late")
        job, ending = held(unusual, "joined")
        assert meet(results.join(job.seq, "late"), ending).ok == [job.seq]
        [told] = listener.notifies(timeout=60, stop_after=1)
    assert told.payload.split(":")[0] == str(job.seq)
    assert [found.state for found in engine.run(results.status("joined", seqs=[job.seq]))] == ["completed"]
    job, ending = held(unusual, "joined")
    assert meet(ending, results.join(job.seq, "late")) is None


def test_a_ttl_that_is_set_while_the_job_ends_counts() -> None:
    engine.run(engine.create("kept", preset="jobqueue", result_ttl_ms=1_000))
    for sets in (True, False):
        job, ending = held(True, "kept")
        setting = results.update_result_ttl("kept", 3_600_000, seq=job.seq)
        answer = meet(*((setting, ending) if sets else (ending, setting)))
        assert answer.ok == [job.seq] if sets else answer == (job.seq, True)
        (found,) = engine.run(results.status("kept", seqs=[job.seq]))
        assert (found.expires_at - found.finished_at).total_seconds() > 3_000
