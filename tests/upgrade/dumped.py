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
#: What a schema consists of, but for the partitions of the log, which come and go. Not the texts of expressions: those
#: that were dumped once are written otherwise.
SCHEMA = """
WITH ours AS (
    SELECT oid, relname FROM pg_class WHERE relname ~ '^leasequeue_' AND relname !~ '_leaseevent_(p[0-9]|default)')
SELECT format('function %s: %s', p.proname, p.prosrc) FROM pg_proc p WHERE p.proname ~ '^(leasequeue|pgtrigger)_'
UNION ALL SELECT format('relation %s', relname) FROM ours
UNION ALL SELECT format('column %s.%s %s, not null: %s, default: %s', o.relname, a.attname,
    format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef)
    FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT format('constraint %s on %s, valid: %s', c.conname, o.relname, c.convalidated)
    FROM ours o JOIN pg_constraint c ON c.conrelid = o.oid
UNION ALL SELECT format('trigger %s on %s', t.tgname, o.relname) FROM ours o JOIN pg_trigger t ON t.tgrelid = o.oid
"""
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
    with server.connect(name) as connection:
        return {text for (text,) in connection.execute(SCHEMA).fetchall()}


def _dump(server: Server, *options: str) -> str:
    command = [server.bin_dir / "pg_dump", *options, server.conninfo()]
    return _NEWER.sub("", subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _psql(server: Server, conninfo: str, script: str) -> None:
    command = [server.bin_dir / "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", conninfo]
    subprocess.run(command, input=script, text=True, check=True, stdout=subprocess.DEVNULL)
