"""``manage.py leasequeue_dlq``."""

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from django_leasequeue.models import BulkOperation, OperatorAction
from tests.admin.letters import bury, failure, start, states
from tests.engine.helpers import make
from tests.support.commands import said, warned

pytestmark = pytest.mark.django_db

run = partial(said, "leasequeue_dlq")


def as_json(*words: Any) -> Any:
    return json.loads(run(*words, "--json"))


def test_groups() -> None:
    bury(3, "mail", failure=failure("a", "no route", "shop.Timeout"))
    bury(1, "mail", failure=failure("b"))
    text = run("groups", "--queue", "mail")
    assert ("shop.Timeout" in text, "no route" in text) == (True, True)
    found = as_json("groups", "--size", 1)
    assert [group["fingerprint"] for group in found["groups"]] == ["b"]
    follow = as_json("groups", "--size", 1, "--after", found["next"])
    assert [(group["fingerprint"], group["dead_letters"]) for group in follow["groups"]] == [("a", 3)]


def test_a_queue_that_does_not_exist_is_named() -> None:
    bury(1, "mail")
    assert warned("leasequeue_dlq", "groups", "--queue", "mial") == "There is no queue mial.\n"
    assert warned("leasequeue_dlq", "groups", "--queue", "mail") == ""


def test_list() -> None:
    seqs = bury(3, "mail", data={"password": "s3cret", "n": 1})
    assert str(seqs[0]) in run("list")
    found = as_json("list", "--size", 2)
    assert [letter["seq"] for letter in found["dead_letters"]] == seqs[:0:-1]
    assert "data" not in found["dead_letters"][0]
    (last,) = as_json("list", "--after", found["next"], "--with-payload")["dead_letters"]
    assert last["data"] == {"password": "[hidden]", "n": 1}
    assert as_json("list", "--payload", "data.n = 2")["dead_letters"] == []


def test_retry_here_or_by_the_reaper() -> None:
    mine, other = bury(3, failure=failure("a")), bury(1, failure=failure("b"))
    done = as_json("retry", "--fingerprint", "a", "--yes", "--here")
    assert (done["state"], done["done"], done["expected"]) == ("done", 3, 3)
    assert states(mine + other) == ["ready"] * 3 + ["dead"]
    lines = OperatorAction.objects.order_by("pk")
    assert [(line.action, line.source) for line in lines] == [("retry", "command"), ("retry.done", "reaper")]
    assert all(line.username and line.operation_id == done["operation"] for line in lines)
    assert "the reaper carries it out" in run("retry", "--seq", other[0], "--yes", "--rate", 5, "--jitter", 1.5)
    made = BulkOperation.objects.latest("pk")
    assert (made.state, made.seqs, made.rate, made.jitter_ms) == ("pending", other, 5, 1_500)


def test_redrive_and_conflicts() -> None:
    make("spare")
    seqs = bury(2)
    text = run("redrive", "--to", "spare", "--seq", seqs[0], "--seq", 999_999, "--yes", "--here")
    assert ("1 done, 1 left alone" in text, "not there any more" in text) == (True, True)


def test_discard() -> None:
    (seq,) = bury(1)
    with pytest.raises(CommandError, match="reason"):
        run("discard", "--yes")
    assert as_json("discard", "--dry-run", "--reason", "x")["matches"] == 1
    assert "queue work: 1" in run("discard", "--dry-run", "--reason", "x")
    with pytest.raises(CommandError, match="--yes"):
        run("discard", "--reason", "x")
    assert states([seq]) == ["dead"]
    run("discard", "--reason", "x", "--yes", "--here")
    assert states([seq]) == ["-"]
    assert "0 dead letters match" in run("discard", "--reason", "x", "--yes")


def test_export(tmp_path: Path) -> None:
    bury(3)
    rows = list(csv.DictReader(io.StringIO(run("export"))))
    assert len(rows) == 3
    assert [json.loads(line)["queue"] for line in run("export", "--json").splitlines()] == ["work"] * 3
    run("export", "--format", "jsonl", "--output", tmp_path / "letters")
    assert len((tmp_path / "letters").read_text().splitlines()) == 3
    with pytest.raises(CommandError, match="cannot be written"):
        run("export", "--output", tmp_path / "missing" / "letters")


def test_what_is_wrong_is_said() -> None:
    bury(1)
    for words, message in (
        (["list", "--since", "yesterday"], "how long ago"), (["list", "--after", "x"], "cursor"),
        (["redrive", "--to", "nowhere", "--yes"], "no queue"), (["retry", "--rate", "0", "--yes"], "rate"),
    ):  # fmt: skip
        with pytest.raises(CommandError, match=message):
            run(*words)
    start("retry")
    with pytest.raises(CommandError, match="is active"):
        run("retry", "--yes")
