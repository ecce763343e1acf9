"""What the page "Backup, restore, upgrade" says of parts, staging and sequences, and the command that it names."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import models

from django_leasequeue import engine
from django_leasequeue.checks.database import check_databases
from django_leasequeue.engine import ConnectionExecutor, NewJob, epoch
from django_leasequeue.engine.pool import connect
from django_leasequeue.models import OperatorAction, StoredJob, Timeline
from django_leasequeue.reaper import duties, status
from django_leasequeue.reaper.duty import DutyRun
from django_leasequeue.sql import paths, statement
from tests.engine.helpers import NODE, claim, fetch, make, one, put, run
from tests.support.commands import tried
from tests.support.restoring import dump
from tests.support.rows import rows
from tests.support.temporary_server import TemporaryServer

PAGE = (Path(settings.BASE_DIR) / "docs/how-to/backup.md").read_text(encoding="utf-8")


@pytest.fixture
def copied(transactional_db: None) -> Any:
    """The test database as if its rows had come from elsewhere: the epoch that begins is taken back."""
    make("work")
    put(3)
    rows(Timeline).create(timeline=1, head=3, mark=1, sealed=3, horizon=1, noted_at="2000-01-01T00:00Z")
    yield
    with connect("default") as own:
        own.execute(
            "CREATE OR REPLACE FUNCTION leasequeue_epoch() RETURNS bigint"
            " LANGUAGE sql STABLE PARALLEL SAFE RETURN 0::bigint"
        )


def test_everybody_says_that_readers_wait_until_the_reaper_has_begun_an_epoch(copied: None) -> None:
    said = "0 rows of the lease log lie above the horizon"
    with connect("default") as own:
        executor = ConnectionExecutor(own)
        assert said in next(status.lake_status())
        assert said in "".join(status.read_status("default").problems)
        assert [each.id for each in check_databases(None, ["default"]) if said in each.msg] == ["leasequeue.W028"]
        duties.note_timeline(DutyRun(own, "default"))
        assert executor.run(epoch.above_horizon()) is None
    put(1)
    assert run("SELECT txid >> 44 FROM leasequeue_leaseevent ORDER BY txid DESC, id DESC LIMIT 1") == [(1,)]
    assert said not in "".join([*status.lake_status(), *status.read_status("default").problems])


def test_the_command_begins_it_and_says_so_in_the_audit(copied: None, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("leasequeue_restored")
    call_command("leasequeue_restored")
    first, second = capsys.readouterr().out.splitlines()
    assert "epoch 1 has begun" in first
    assert "no epoch has to begin" in second
    noted = OperatorAction.objects.get()
    assert (noted.action, noted.detail["epoch"]) == ("begin_epoch", 1)


def test_the_command_waits_for_open_transactions_and_names_them(copied: None, test_dsn: str) -> None:
    with psycopg.connect(test_dsn) as writer:
        ConnectionExecutor(writer).run(engine.enqueue("work", [NewJob()]))
        with pytest.raises(CommandError, match=r"is open\. Stop web and workers"):
            call_command("leasequeue_restored", wait=0)
    with connect("default") as own:
        assert ConnectionExecutor(own).run(epoch.above_horizon()) is not None, "nothing has begun"


def behind() -> dict[str, int]:
    return {name: highest for name, highest, _ in fetch("sequences_behind")}


def test_sequences_that_stand_behind_are_found_and_set_forward(transactional_db: None) -> None:
    make("work")
    (*_, last) = put(5)
    assert behind() == {}
    run("ALTER SEQUENCE leasequeue_job_seq_seq RESTART; ALTER SEQUENCE leasequeue_queue_id_seq RESTART")
    assert set(behind()) == {"public.leasequeue_job_seq_seq", "public.leasequeue_queue_id_seq"}
    told, failure = tried("leasequeue_verify", "--json")
    assert "2 differences" in str(failure)
    found = {item["expected"]["sequence"]: item for item in json.loads(told)["differences"]}
    number = found["public.leasequeue_job_seq_seq"]["expected"]
    assert re.fullmatch(rf"SELECT setval\(.*, greatest\({number['at_least']}, nextval\(.*", number["mend"])
    assert number["at_least"] >= last
    run(number["mend"])
    assert set(behind()) == {"public.leasequeue_queue_id_seq"}
    assert tried("leasequeue_verify", "--mend")[1] is None
    assert behind() == {}
    (new,) = put(1)
    assert new > last


@pytest.mark.django_db
def test_sequences_that_a_role_may_not_read_are_not_taken_for_unused() -> None:
    make("work")
    run("CREATE ROLE tests_looker; GRANT SELECT ON ALL TABLES IN SCHEMA public TO tests_looker")
    run("SET LOCAL ROLE tests_looker")
    assert behind() == {}


def test_jobs_that_are_gone_keep_their_numbers(transactional_db: None) -> None:
    make("work")
    (last,) = put(1)
    engine.run(engine.ack([one().seq], NODE))
    assert not StoredJob.objects.exists()
    run("ALTER SEQUENCE leasequeue_job_seq_seq RESTART")
    assert behind()["public.leasequeue_job_seq_seq"] >= last


def test_every_sequence_is_looked_at() -> None:
    from django.apps import apps

    text = statement("sequences_behind")
    for model in apps.get_app_config("leasequeue").get_models():
        if model._meta.managed and isinstance(model._meta.pk, models.AutoField | models.BigAutoField):
            assert f"'{model._meta.db_table}'" in text, model


def test_the_statements_for_staging_run(transactional_db: None) -> None:
    make("work")
    put(1)
    run(*re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))
    assert claim() == []


@pytest.mark.slow
def test_a_part_of_a_dump_is_a_whole_queue(
    migrated_server: TemporaryServer, private_server: TemporaryServer, tmp_path: Path
) -> None:
    """By the page's filter; the host's tables stay behind, and all that the queue needs comes along."""
    with psycopg.connect(migrated_server.url(), autocommit=True) as own:
        ConnectionExecutor(own).run(engine.create("work"))
        ConnectionExecutor(own).run(engine.enqueue("work", [NewJob(1)]))
    dump(migrated_server, tmp_path / "app.dump")
    program = migrated_server.bin_dir / "pg_restore"
    (pattern,) = re.findall(r"grep -E '(.*?)'", PAGE)
    listed = subprocess.run([program, "--list", tmp_path / "app.dump"], capture_output=True, text=True, check=True)
    chosen = tmp_path / "queue.list"
    chosen.write_text("\n".join(line for line in listed.stdout.splitlines() if re.search(pattern, line)) + "\n")
    where = f"--dbname={private_server.conninfo()}"
    subprocess.run([program, "--exit-on-error", f"--use-list={chosen}", where, tmp_path / "app.dump"], check=True)
    with psycopg.connect(private_server.url(), autocommit=True) as own:
        executor = ConnectionExecutor(own)
        (job,) = executor.run(engine.claim(["work"], "node", 1))
        assert executor.run(engine.ack([job.seq], "node"))
        assert own.execute("SELECT to_regclass('auth_user')").fetchone() == (None,)


def test_every_statement_that_writes_events_numbers_them_by_the_epoch() -> None:
    writing = {name: text for name in paths() if "INTO leasequeue_leaseevent (txid" in (text := statement(name))}
    assert len(writing) > 15
    bare = {name for name, text in writing.items() if re.search(r"(?<!<< 44\) \+ )pg_current_xact_id\(\)::text", text)}
    assert bare == set()
