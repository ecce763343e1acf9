"""The names by which sessions find each other: each is that of one install, and stands in one list."""

import re
from pathlib import Path

import pytest
from django.apps import apps

import django_leasequeue
import testproject
from django_leasequeue import sql
from django_leasequeue.words import CHANNELS, LOCKS, named

ROOT = Path(django_leasequeue.__file__).parent
#: The text of each module, statement and migration that may take a lock or send a notification.
TEXTS = {
    path.relative_to(ROOT.parent).as_posix(): path.read_text(encoding="utf-8")
    for root in (ROOT, Path(testproject.__file__).parent)
    for path in root.rglob("*")
    if path.suffix in (".py", ".sql") and path.parent.name != "frozen"  # copies of sql/functions, filled in
}
#: What takes, gives back or looks for a lock, and what stands there as its first key.
KEY = re.compile(r"(?:pg_\w*advisory_\w*lock\w*\(|\bclassid = )\s*(%\(\w+\)\S+?,|[^\s,)]+)")


def test_no_statement_takes_a_lock_by_another_key_than_those_of_the_list() -> None:
    taken = {(path, key) for path, text in TEXTS.items() for key in KEY.findall(text)}
    assert len(taken) > 15, "the locks are found"
    allowed = {f"{{lock.{name}}}" for name in LOCKS} | {f"{{lock.{name}}}::oid" for name in LOCKS}
    strange = sorted(each for each in taken if each[1] not in allowed)
    # Statements of the listener: the key is that of its alias (`notify_names`).
    assert strange == [
        (f"django_leasequeue/sql/notify/notify_{does}.sql", "%(lock)s::int,") for does in ("hold", "release")
    ]


def test_every_lock_and_channel_of_the_list_is_used_and_has_a_table_of_its_own() -> None:
    used = {name for text in TEXTS.values() for name in re.findall(r"\{(?:lock|channel)\.(\w+)\}", text)}
    assert set(LOCKS) | set(CHANNELS) <= used
    tables = [lock.table for lock in LOCKS.values()]
    assert len(set(tables)) == len(tables)
    known = {model._meta.db_table for model in apps.get_app_config("leasequeue").get_models()}
    assert {*tables, *(table for table, _ in CHANNELS.values())} <= known


#: Names that the sender got from who listens, or made up: nobody else can have the same.
GIVEN = {"split_part", "c", "%s", "%(channel)s"}


def test_no_statement_notifies_a_channel_that_another_install_may_have() -> None:
    told = {(path, to) for path, text in TEXTS.items() for to in re.findall(r"pg_notify\((%\(\w+\)s|[^,(\s]+)", text)}
    assert len(told) > 8, "the notifications are found"
    assert sorted(each for each in told if each[1] not in GIVEN and not each[1].startswith("{channel.")) == []


def test_a_name_that_is_not_in_the_list_is_an_error() -> None:
    with pytest.raises(KeyError):
        named("SELECT pg_advisory_xact_lock({lock.nothing}, 0)")
    assert [name for name in sql.paths() if re.search(r"\{(lock|channel)\b", sql.statement(name))] == []


def test_other_programs_are_told_of_the_names_that_are_used() -> None:
    docs = ROOT.parent / "docs"
    told = (docs / "reference/runworker.md").read_text(encoding="utf-8")
    for name in ("{lock.listeners}", "{channel.jobs}"):
        assert named(name).strip("()").removesuffix("::text") in told
    base = named("{lock.listeners}").partition(" ")[0].strip("(")
    assert f"(l.classid::int # {base})::oid::regclass" in (docs / "how-to/second-database.md").read_text(
        encoding="utf-8"
    )
