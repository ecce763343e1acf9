"""What is wrong with a migration of tables that are large and in use.

Squawk reads its SQL: of the linters for PostgreSQL it is kept best, and knows locks and rewrites by version. What only
Django knows is asked here: operations without a way back, data migrations, what the previous release still uses.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.db.migrations import Migration, RunPython, RunSQL
from django.db.migrations.state import ProjectState

#: Of the first release. Tables are new in these: nobody waits for their locks.
INITIAL = ("0001_initial", "0002_jobs", "0003_log", "0004_flow", "0005_operators", "0006_views")
#: The releases that upgrades are tested from.
RELEASES = Path(__file__).parents[1] / "upgrade"
#: Style of SQL that Django writes.
STYLE = (
    "prefer-bigint-over-int", "prefer-bigint-over-smallint", "prefer-identity", "prefer-robust-stmts", "prefer-text-field",
    "prefer-timestamp-tz", "require-lock-timeout", "require-statement-timeout", "require-timeout-settings",
)  # fmt: skip
#: Rules of Squawk against what the previous release still uses.
USED = {"ban-drop-column", "ban-drop-table"}
_BODY = re.compile(r"\$\$.*?\$\$", re.DOTALL)
_CHANGES_ROWS = re.compile(r"^\s*(UPDATE|DELETE|INSERT|WITH)\b", re.IGNORECASE | re.MULTILINE)


def statements(migration: Migration, state: ProjectState, connection: Any) -> list[str]:
    """The SQL of a migration, operation by operation: what runs Python is left out."""
    found = []
    for operation in migration.operations:
        before = state.clone()
        operation.state_forwards(migration.app_label, state)
        if operation.reduces_to_sql:
            with connection.schema_editor(collect_sql=True, atomic=False) as editor:
                operation.database_forwards(migration.app_label, editor, before, state)
            found.append("\n".join(editor.collected_sql))
    return found


def problems(migration: Migration, state: ProjectState, connection: Any) -> list[str]:
    """Say by rule what is wrong; ``state`` is that of the migrations before."""
    found, sql = [], statements(migration, state, connection)
    for operation in migration.operations:
        if not operation.reversible:
            found.append(f"irreversible: {operation.describe()}")
        if isinstance(operation, RunPython) and migration.atomic:
            found.append("data-in-one-transaction: RunPython commits in batches, in a migration with atomic = False")
        if (
            isinstance(operation, RunSQL)
            and isinstance(operation.sql, str)
            and _CHANGES_ROWS.search(_BODY.sub("", operation.sql))
        ):
            found.append("data-in-one-statement: change rows in batches, by RunPython")
    if any("CONCURRENTLY" in text for text in sql) and (migration.atomic or len(migration.operations) > 1):
        found.append("concurrently-apart: one operation, in a migration with atomic = False")
    unused_since = getattr(migration, "unused_since", None)
    if unused_since is not None and not (RELEASES / unused_since).is_dir():
        found.append(f"unused-since: {unused_since} is not a release that upgrades are tested from")
    allowed = USED if unused_since else set()
    return found + [problem for problem in _squawk(sql, migration.atomic) if problem.partition(":")[0] not in allowed]


def _squawk(sql: list[str], in_transaction: bool) -> list[str]:
    squawk = Path(sys.executable).with_name("squawk")
    command = [squawk, "--reporter=json", "--pg-version=15", *(f"--exclude={rule}" for rule in STYLE)]
    command += ["--assume-in-transaction"] * in_transaction
    done = subprocess.run(command, input=";\n".join(sql), capture_output=True, text=True, check=False)
    return [f"{found['rule_name']}: {found['message']}" for found in json.loads(done.stdout)]
