"""The server's configuration: what is set, and where its socket is."""

import hashlib
import re
from pathlib import Path

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


def socket_dir(data_dir: Path) -> Path:
    """Say where the socket of the server on this data is: in the data, or in ``/tmp`` where that path is too long.

    The answer depends on the path alone, so settings can name the socket before the server was ever started.
    """
    path = str(data_dir)
    if len(f"{path}/.s.PGSQL.{PORT}".encode()) <= _LONGEST_SOCKET and _PLAIN_PATH.fullmatch(path):
        return data_dir
    # Foreseeable, so it is looked at before it is used: see `ownership`.
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
