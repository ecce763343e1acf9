"""CONTRIBUTING.md shows the walks of calls as they are: ``scripts/trace-calls`` counts them in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from django_leasequeue.devdb.database_url import url_from_database
from django_leasequeue.engine import exchange
from tests.support.temporary_server import TemporaryServer

BASE = Path(__file__).resolve().parents[2]


@pytest.mark.slow  # a process that migrates, and makes each call four times
@pytest.mark.skipif(not exchange.ENABLED, reason="without the exchange, statements go by cursors: another walk")
def test_calls_stay_short_and_contributing_shows_their_walks(migrated_server: TemporaryServer) -> None:
    environment = {**os.environ, "DATABASE_URL": url_from_database(migrated_server.django_database())}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    command = [sys.executable, "scripts/trace-calls", "--check"]
    done = subprocess.run(command, check=False, cwd=BASE, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
