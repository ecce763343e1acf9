"""The engine's story in a process of its own; the arguments are names that psycopg's generators then lack.

It prints psycopg's implementation, and how many statements of a connection of ours the exchange has prepared.
"""

import asyncio
import json
import sys

import django
from psycopg import generators, pq


def main() -> None:
    from django_leasequeue import engine
    from django_leasequeue.engine import NewJob
    from django_leasequeue.engine.pool import close_pools
    from tests.engine.helpers import NODE, own_connection
    from tests.engine.story import check, tell

    async def take() -> list[engine.LeasedJob]:
        try:
            return await engine.arun(engine.claim("other", NODE))
        finally:
            await close_pools()

    with own_connection() as executor:
        check(tell(executor.run))
        names = executor.connection.execute("SELECT name FROM pg_prepared_statements", prepare=False).fetchall()
    engine.run(engine.create("other"))
    engine.run(engine.enqueue("other", [NewJob({"é": None})]))
    (job,) = asyncio.run(take())
    assert job.data == {"é": None}
    print(json.dumps([pq.__impl__, len(names)]))


for name in sys.argv[1:]:
    delattr(generators, name)
django.setup()
main()
