"""The databases that a host finds: what each yields are variables of its environment, beside ``DATABASE_URL``."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from django_leasequeue.devdb.account import account_for, open_path
from django_leasequeue.devdb.server import DATABASE, PORT, SUPERUSER, socket_dir
from tests.support.environment import BASE_DIR
from tests.support.ports import free_port
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually

HOME = BASE_DIR / ".leasequeue"
#: A role that may log in and owns nothing.
APP = "app"


class Absent(Exception):
    """What a host stands on cannot be had here; the message is a sentence that says what to do."""


@contextmanager
def server() -> Iterator[dict[str, str]]:
    with TemporaryServer(HOME) as one:
        yield {"DATABASE_URL": one.url()}


@contextmanager
def app_role() -> Iterator[dict[str, str]]:
    """A role that owns nothing; ``OWNER_URL`` leads to the role that migrates."""
    with TemporaryServer(HOME) as one:
        with one.connect() as owner:
            owner.execute(f"CREATE ROLE {APP} LOGIN")
        yield {"DATABASE_URL": one.url().replace(f"//{SUPERUSER}@", f"//{APP}@"), "OWNER_URL": one.url()}


@contextmanager
def postgis() -> Iterator[dict[str, str]]:
    """A PostgreSQL with PostGIS where Debian's packages, or PGDG's, put it."""
    share = Path("/usr/share/postgresql")
    found = sorted(share.glob("*/extension/postgis.control"), key=lambda path: int(path.parts[-3]))
    bin_dir = Path("/usr/lib/postgresql") / found[-1].parts[-3] / "bin" if found else None
    if bin_dir is None or not (bin_dir / "initdb").exists():
        raise Absent("No PostgreSQL with PostGIS found: apt install postgresql-15-postgis-3 (or another version's).")
    with TemporaryServer(HOME, bin_dir=bin_dir) as one:
        yield {"DATABASE_URL": one.url()}


@contextmanager
def pgbouncer_session() -> Iterator[dict[str, str]]:
    with pooled("session") as (pooler, direct):
        yield {"DATABASE_URL": pooler, "DIRECT_URL": direct}


@contextmanager
def pgbouncer_transaction() -> Iterator[dict[str, str]]:
    with pooled("transaction") as (pooler, direct):
        yield {"DATABASE_URL": pooler, "DIRECT_URL": direct}


@contextmanager
def poolers() -> Iterator[dict[str, str]]:
    with pooled("transaction") as (pooler, direct), pooled("transaction") as (far, far_direct):
        yield {"DATABASE_URL": pooler, "DIRECT_URL": direct, "FAR_URL": far, "FAR_DIRECT_URL": far_direct}


@contextmanager
def pooled(mode: str) -> Iterator[tuple[str, str]]:
    """Yield the addresses of a pgbouncer and of the server behind it."""
    program = pgbouncer()
    with ExitStack() as stack:
        one = stack.enter_context(TemporaryServer(HOME))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        port = free_port()
        (folder / "users").write_text(f'"{SUPERUSER}" ""\n')
        (folder / "ini").write_text(
            "[databases]\n"
            f"* = host={socket_dir(one.data_dir)} port={PORT}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder}/users\n"
            # As few as let sessions be mixed up where somebody relies on them.
            f"pool_mode = {mode}\ndefault_pool_size = {3 if mode == 'transaction' else 60}\nmax_client_conn = 200\n"
        )
        # pgbouncer refuses to run as root, like PostgreSQL.
        account = account_for(one.data_dir)
        open_path(account, program)
        who = {"user": account.uid, "group": account.gid, "extra_groups": ()} if account else {}
        process = subprocess.Popen([program, "-q", folder / "ini"], stderr=subprocess.PIPE, text=True, **who)
        stack.callback(process.wait, 30)
        stack.callback(process.kill)
        url = f"postgresql://{SUPERUSER}@127.0.0.1:{port}/{DATABASE}"
        eventually(lambda: process.poll() is not None or answers(url), "pgbouncer answers", 30)
        assert process.poll() is None, process.stderr and process.stderr.read()
        yield url, one.url()


def pgbouncer() -> Path:
    """Return the program; Debian's testing has one for machines that have none."""
    installed = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if installed:
        return Path(installed)
    script = [BASE_DIR / "scripts/from-debian", ".leasequeue/pgbouncer", "usr/sbin/pgbouncer", "pgbouncer"]
    env = {**os.environ, "PYTHON": sys.executable}
    made = subprocess.run(script, cwd=BASE_DIR, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        raise Absent("No pgbouncer found, and none to be had from Debian: apt install pgbouncer.")
    return Path(made.stdout.strip())


def pgbouncer_version() -> str:
    said = subprocess.run([pgbouncer(), "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    (version,) = re.findall(r"PgBouncer (\S+)", said)
    return str(version)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
