"""The dump of a release's database under load: how it is taken, and what it becomes when this version migrates it."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

from django_leasequeue.devdb.server import Server
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

from .versions import HERE, Version

MIGRATE = ("-m", "django", "migrate", "--verbosity", "0")
#: Settings that an older server does not know, and what the newest pg_dump writes for its psql.
_NEWER = re.compile(r"^(SET transaction_timeout|\\(un)?restrict).*\n", re.MULTILINE)
#: Load of the dump: few jobs, so that it is small; and so many are done when it is taken.
RATE, DONE, PAUSE = 60.0, 300, 30.0


def take(server: TemporaryServer, version: Version, into: Path) -> None:
    """Put a version at work, dump its database meanwhile, and keep what its web process was answered before."""
    version.run(*MIGRATE)
    version.work(1)
    version.serve(1, RATE, PAUSE)
    with server.connect() as connection:
        count = "SELECT count(*) > %s FROM leasequeue_jobresult"
        eventually(lambda: connection.execute(count, [DONE]).fetchone()[0], "that jobs are done")  # type: ignore[index]
    ledger = version.ledger.read_bytes()
    (into / "database.sql.gz").write_bytes(gzip.compress(_dump(server, "--no-owner").encode(), 9, mtime=0))
    (into / "ledger.gz").write_bytes(gzip.compress(ledger, 9, mtime=0))
    version.stop()


def upgrade(server: TemporaryServer, release: str, directory: Path) -> list[str]:
    """Restore a release's dump, migrate and drain it with this version; return what is wrong."""
    with gzip.open(HERE / release / "database.sql.gz", "rt", encoding="utf-8") as file:
        _psql(server, server.conninfo(), file.read())
    version = Version("head", Path(sys.executable), server.url(), directory)
    version.ledger.write_bytes(gzip.decompress((HERE / release / "ledger.gz").read_bytes()))
    try:
        version.run("-m", "django", "leasequeue_restored")
        version.run(*MIGRATE)
        version.work(1)
        verdict = json.loads(version.run("-m", "shop.judge", str(version.ledger)))
        version.stop()
    finally:
        version.kill()
    print(f"from the dump: right: {verdict['right']}; wrong: {verdict['wrong']}", flush=True)
    wrong = [*verdict["first"], *version.errors()]
    version.ledger.unlink()
    _psql(server, server.conninfo("postgres"), "CREATE DATABASE fresh")
    Version("head", Path(sys.executable), server.url("fresh"), directory).run(*MIGRATE)
    return wrong + [f"the schema differs: {line}" for line in _schema(server) ^ _schema(server, "fresh")]


def _schema(server: Server, name: str = "leasequeue") -> set[str]:
    """The lines of a schema: a column that was added later stands in another place. Partitions come and go."""
    lines = _dump(server, "--schema-only", "--no-owner", name=name).splitlines()
    return {line.rstrip(",").strip() for line in lines if not re.search(r"leaseevent_p\d+|^\s*--", line)}


def _dump(server: Server, *options: str, name: str = "leasequeue") -> str:
    command = [server.bin_dir / "pg_dump", *options, server.conninfo(name)]
    return _NEWER.sub("", subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _psql(server: Server, conninfo: str, script: str) -> None:
    command = [server.bin_dir / "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", conninfo]
    subprocess.run(command, input=script, text=True, check=True, stdout=subprocess.DEVNULL)
