"""The package stays as easy to find one's way in as it is."""

from __future__ import annotations

from pathlib import Path

import django_leasequeue
from django_leasequeue import sql

ROOT = Path(django_leasequeue.__file__).parent


def test_few_things_stand_at_the_root() -> None:
    entries = {path.name for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert len({name for name in entries if name.endswith(".py")}) <= 8
    assert len(entries) <= 30


def test_every_statement_has_a_name_and_a_header_of_its_own() -> None:
    files = sorted(Path(sql.__file__).parent.rglob("*.sql"))
    assert sorted(sql.path(name) for name in sql.names()) == files
    headers = {name: sql.header(name).keys() for name in sql.names()}
    assert [name for name, said in headers.items() if "Purpose" not in said] == []
    assert [name for name, said in headers.items() if "Parameters" not in said and "%(" in sql.statement(name)] == []
