"""``leasequeue_lake`` where its extra is not installed."""

import sys

import pytest
from django.core.management import CommandError, call_command


@pytest.mark.django_db
@pytest.mark.parametrize("action", ["run", "archive", "replay", "compact", "report"])
def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CommandError, match=r'pip install "django-leasequeue\[spark\]"'):
        call_command("leasequeue_lake", action, "--lake", "unused", *(["--days", "1"] if action == "report" else []))
