"""Freeze a release for upgrades from it: ``python -m tests.upgrade.freeze VERSION``, after its wheel is there."""

import sys
import tempfile
from pathlib import Path

from tests.support.environment import BASE_DIR
from tests.support.temporary_server import TemporaryServer

from . import dumped
from .versions import HERE, Version, interpreter


def main(release: str) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="lqfreeze.") as directory,
        TemporaryServer(BASE_DIR / ".leasequeue") as server,
    ):
        version = Version(release, interpreter(release), server.url(), Path(directory))
        try:
            dumped.take(server, version, HERE / release)
        finally:
            version.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
