"""The dump of each release, taken under load, becomes this version's database, and its jobs end as they should."""

from pathlib import Path

import pytest

from tests.support.environment import BASE_DIR
from tests.support.temporary_server import TemporaryServer

from . import dumped
from .versions import releases


@pytest.mark.slow
@pytest.mark.parametrize("release", releases())
def test_a_dump_is_restored_migrated_and_drained(release: str, tmp_path: Path) -> None:
    with TemporaryServer(BASE_DIR / ".leasequeue") as server:
        assert dumped.upgrade(server, release, tmp_path) == []
