"""A rolling upgrade from a release, under load: ``python -m tests.upgrade``; 1 if a job was lost, or an error seen.

The release's web process and worker run, the database is migrated under them, and this version's start beside them and
take over; then the other way round, as after a rollback. What the web processes were answered is compared with what
became of it. Before that a dump of the release's database, taken under load, is restored, migrated and drained.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.support.environment import BASE_DIR
from tests.support.temporary_server import TemporaryServer

from . import dumped
from .versions import Version, interpreter, releases

#: Seconds that a durable job of the load sleeps: some begin on one version and end on the other.
PAUSE = 2.0
MIGRATE = ("-m", "django", "migrate", "--verbosity", "0")


def roll(server: TemporaryServer, release: str, given: argparse.Namespace, directory: Path) -> list[str]:
    """Upgrade under load and go back; return what is wrong."""
    old = Version(release, interpreter(release), server.url(), directory)
    new = Version("head", Path(sys.executable), server.url(), directory)
    firsts, rate = iter(range(10**9, 10**11, 10**9)), given.rate

    def serve(*versions: Version) -> None:
        for version in versions:
            version.serve(next(firsts), rate / len(versions), PAUSE)

    def load(what: str) -> None:
        print(f"{what}: {given.seconds / 5:g} s", flush=True)
        time.sleep(given.seconds / 5)

    try:
        old.run(*MIGRATE)
        old.work(given.processes)
        serve(old)
        load(f"{release} alone")
        new.run(*MIGRATE)
        load(f"{release} on the schema of head")
        old.stop("web")
        new.work(given.processes)
        serve(old, new)
        load("both")
        old.stop()
        new.stop("web")
        serve(new)
        load("head alone")
        new.stop()
        old.work(given.processes)
        serve(old)
        load(f"{release} again, with what head has begun")
        old.stop()
        new.work(given.processes)
        verdict = json.loads(new.run("-m", "shop.judge", str(old.ledger), str(new.ledger)))
        new.stop()
    finally:
        old.kill()
        new.kill()
    print(f"right: {verdict['right']}; wrong: {verdict['wrong']}", flush=True)
    return [*verdict["first"], *old.errors(), *new.errors()]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--release", choices=releases(), default=releases()[-1])
    parser.add_argument("--rate", type=float, default=2_000.0, help="jobs a second")
    parser.add_argument("--seconds", type=float, default=120.0, help="of load")
    parser.add_argument("--processes", type=int, default=1, help="of each worker")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lqupgrade.") as name:
        directory = Path(name)
        with TemporaryServer(BASE_DIR / ".leasequeue") as server:
            wrong = dumped.upgrade(server, given.release, directory)
        with TemporaryServer(BASE_DIR / ".leasequeue") as server:
            wrong += roll(server, given.release, given, directory)
    print("\n".join(wrong) or f"From {given.release} to this version and back: nothing lost, no error.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
