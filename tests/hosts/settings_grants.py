"""A role with the rights that the documentation names; another one owns the tables."""

import os
import subprocess
import sys

import psycopg

from tests.hosts.settings_plain import *  # noqa: F403

#: The tables of the rest of the project are the role's to change.
_OTHERS = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE 'leasequeue%' LOOP
        EXECUTE format('GRANT ALL ON %I TO app', name);
    END LOOP;
END $$
"""


def prepare() -> None:
    from tests.support.documents import blocks

    env = {**os.environ, "DATABASE_URL": os.environ["OWNER_URL"]}
    subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], env=env, check=True)
    (granted,) = [block.text for block in blocks("reference/grants.md") if block.language == "sql"]
    with psycopg.connect(os.environ["OWNER_URL"], autocommit=True) as owner:
        owner.execute(granted)
        owner.execute(_OTHERS)
