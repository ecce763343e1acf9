"""Started by root, the embedded PostgreSQL uses nothing that another account has prepared, or could swap."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from django_leasequeue.devdb import DevDBError, Server
from django_leasequeue.devdb.account import check_directory, exclusive
from django_leasequeue.devdb.server import PORT, socket_dir

OTHER = 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories to others")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory of root's own; the way to it is open, as other accounts need it."""
    with tempfile.TemporaryDirectory(prefix="lqowner-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@as_root
@pytest.mark.parametrize(("kind", "says"), [
    ("another's", "belongs to the account 12345, and root uses no data of others. Run this as 12345"),
    ("another's, with data", "belongs to the account 12345"),
    ("open", r"open to other accounts \(mode 755\): close it \(chmod 700 "),
    ("a link", "is a symbolic link: name the directory that it leads to, "), ("a file", "is no directory"),
])  # fmt: skip
def test_what_is_not_roots_own_is_refused_and_left_as_it_is(directory: Path, kind: str, says: str) -> None:
    (directory / "project").mkdir()
    data = directory / "project" / "pg"
    if kind == "a file":
        data.write_text("x")
    elif kind == "a link":
        (data.parent / "elsewhere").mkdir(mode=0o700)
        data.symlink_to(data.parent / "elsewhere")
    else:
        data.mkdir()
        data.chmod(0o755 if kind == "open" else 0o700)
        if kind == "another's, with data":
            (data / "PG_VERSION").write_text("18\n")
        if kind != "open":
            os.chown(data, OTHER, OTHER)
    before = everything(directory)
    server = Server(data)
    for act in (server.start, server.stop):
        with pytest.raises(DevDBError, match=says):
            act()
    with pytest.raises(CommandError, match=says):
        call_command("leasequeue_devdb", "start", f"--data={data}")
    assert everything(directory) == before


def everything(directory: Path) -> dict[str, tuple[int, int, int]]:
    found = {str(path): path.lstat() for path in [directory, *directory.rglob("*")]}
    return {path: (status.st_uid, status.st_gid, status.st_mode) for path, status in found.items()}


def a_directory_of_anothers(sockets: Path, treasure: Path) -> None:
    sockets.mkdir(mode=0o700)
    os.chown(sockets, OTHER, OTHER)
    # The process that its lock file names would be ended.
    (sockets / f".s.PGSQL.{PORT}.lock").write_text(f"{os.getpid()}\n")


def a_link_to_roots(sockets: Path, treasure: Path) -> None:
    sockets.symlink_to(treasure)
    os.lchown(sockets, OTHER, OTHER)


@as_root
@pytest.mark.parametrize("prepare", [a_directory_of_anothers, a_link_to_roots])
def test_a_directory_that_another_prepared_is_not_used(directory: Path, prepare: Callable[[Path, Path], None]) -> None:
    server = Server(directory / ("x" * 120) / "pg")
    sockets = socket_dir(server.data_dir)
    assert sockets.parent == Path("/tmp")
    treasure = directory / "treasure"
    treasure.mkdir()
    prepare(sockets, treasure)
    try:
        with pytest.raises(DevDBError, match=r"belongs to the account 12345|is a symbolic link"):
            server.start()
        assert treasure.stat().st_uid == 0
        assert not server.data_dir.exists()
    finally:
        for path in [] if sockets.is_symlink() else list(sockets.iterdir()):
            path.unlink()
        sockets.unlink() if sockets.is_symlink() else sockets.rmdir()


def test_a_lock_file_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "made-by-mistake")
    with pytest.raises(OSError, match="symbolic links"), exclusive(tmp_path / "lock"):
        pass
    assert not (tmp_path / "made-by-mistake").exists()


@as_root
def test_what_is_roots_own_is_fine_also_in_a_sticky_directory(directory: Path) -> None:
    sticky = directory / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "pg").mkdir(mode=0o700)
    assert check_directory(sticky / "pg", {0})
    assert not check_directory(sticky / "missing", {0})
    assert stat.S_IMODE(sticky.stat().st_mode) == 0o1777


@pytest.mark.slow
@as_root
def test_in_a_checkout_of_another_account_no_configuration_is_written_through_a_link(directory: Path) -> None:
    """As in a container that has somebody's checkout mounted: the data is root's own."""
    checkout = directory / "checkout"
    checkout.mkdir(mode=0o755)
    os.chown(checkout, OTHER, OTHER)
    server = Server(checkout / "pg")
    try:
        assert server.start()
        server.stop()
        victim = directory / "victim"
        victim.write_text("untouched")
        (server.data_dir / "leasequeue.conf").unlink()
        (server.data_dir / "leasequeue.conf").symlink_to(victim)
        server.start()
        assert victim.read_text() == "untouched"
    finally:
        server.stop("immediate")
