"""Checks that a directory is one's own: whoever else can change what is in it leads root astray.

Root gives the data to the server's account, writes the configuration and ends processes by what a file says. So as root
a server is started and stopped only on data that nobody else can have prepared. The directories above may be anybody's:
containers run as root in checkouts of other accounts.
"""

import os
import pwd
import stat
from collections.abc import Collection
from pathlib import Path

from django_leasequeue.devdb.errors import DevDBError

_ELSE = (
    "Another directory will do as well (--data), such as one below /root; or set DATABASE_URL to a PostgreSQL of yours."
)


def check_directory(path: Path, owners: Collection[int]) -> bool:
    """Check that a directory, if it is there, belongs to one of these accounts and is closed to everybody else.

    Returns:
        Whether it is there.

    Raises:
        DevDBError: it is a symbolic link or no directory, is somebody else's, or is open to others; the message says
            what to do.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(status.st_mode):
        raise DevDBError(f"{path} is a symbolic link: name the directory that it leads to, {path.resolve()}.")
    if not stat.S_ISDIR(status.st_mode):
        raise DevDBError(f"{path} is no directory: name another one.")
    if status.st_uid not in owners:
        raise DevDBError(
            f"{path} belongs to the account {name_of(status.st_uid)}. Run this as that account or delete the directory,"
            f" if nobody needs what is in it. {_ELSE}"
        )
    if status.st_mode & 0o077:
        raise DevDBError(
            f"{path} is open to other accounts (mode {stat.S_IMODE(status.st_mode):o}): close it (chmod 700 {path})."
        )
    return True


def name_of(uid: int) -> str:
    """Return the name of an account; its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def is_root() -> bool:
    """Return whether root runs this."""
    return os.geteuid() == 0
