"""The plumbing of the suite itself: every run has a database of its own."""

import os

from django.conf import settings


def test_children_that_inherit_the_environment_never_find_another_database() -> None:
    assert os.environ["DATABASE_URL"] not in {settings.DATABASE_URL, settings.EMBEDDED_DATABASE.url()}
