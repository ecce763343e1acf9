"""The real client, python-zaqarclient 3.0.1, in ``.venv-zaqarclient``, as it pins old libraries: a whole scenario."""

import os
import subprocess
from pathlib import Path

import pytest
from django.conf import settings
from django.test import override_settings

HERE = Path(__file__).parent
CLIENT_PYTHON = Path(
    os.environ.get("LEASEQUEUE_ZAQARCLIENT_PYTHON", Path(settings.BASE_DIR) / ".venv-zaqarclient/bin/python")
)

pytestmark = pytest.mark.skipif(
    not CLIENT_PYTHON.exists(),
    reason="needs .venv-zaqarclient: python -m venv .venv-zaqarclient && .venv-zaqarclient/bin/pip install"
    " python-zaqarclient==3.0.1 'setuptools<81'",
)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_scenario(live_server: object) -> None:
    url: str = live_server.url  # type: ignore[attr-defined]  # pytest-django's fixture
    with override_settings(ROOT_URLCONF="tests.http.zaqar.conftest", LEASEQUEUE={"API": {"ACCESS": "open"}}):
        done = subprocess.run(
            [str(CLIENT_PYTHON), str(HERE / "scenario.py"), url], capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all good" in done.stdout
