"""Chromium, for the tests that sit in front of the pages as a person does.

They run with ``make test-browser`` (``BROWSER_TESTS=1``), and need selenium (the extra ``browser``), Chromium and its
driver (Debian: ``apt install chromium chromium-driver``); ``CHROMIUM`` and ``CHROMEDRIVER`` name others than on PATH.
With ``BROWSER_IMAGES=directory`` they write pictures of the main pages there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.conf import settings

if TYPE_CHECKING:
    from .person import Person


def _found(variable: str, *names: str) -> str | None:
    given = os.environ.get(variable)
    return given or next((path for path in map(shutil.which, names) if path), None)


CHROMIUM = _found("CHROMIUM", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRIVER = _found("CHROMEDRIVER", "chromedriver")


def why_not() -> str | None:
    """Return why the browser tests cannot run here, or ``None``."""
    if os.environ.get("BROWSER_TESTS", "") in ("", "0"):
        return "browser tests run with 'make test-browser'"
    if importlib.util.find_spec("selenium") is None:
        return "selenium is missing: install the extra 'browser'"
    if CHROMIUM is None or DRIVER is None:
        return "no Chromium and chromedriver: apt install chromium chromium-driver, or set CHROMIUM, CHROMEDRIVER"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    reason = why_not()
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a running server of the test project, under a strict Content-Security-Policy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "MIDDLEWARE", [*settings.MIDDLEWARE, "tests.browser.policy.StrictPolicy"])
        yield request.getfixturevalue("live_server").url


@pytest.fixture
def person(address: str, transactional_db: None) -> Iterator[Person]:
    """Somebody in front of a fresh browser, with nothing but a keyboard."""
    from selenium import webdriver

    from .person import Person

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1280,900", "lang=en"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=str(DRIVER)))
    try:
        yield Person(driver, address)
    finally:
        driver.quit()


@pytest.fixture
def reaper(subprocess_env: dict[str, str]) -> Iterator[None]:
    """A running reaper: it carries out operations."""
    command, quiet = [sys.executable, "-m", "django", "runreaper"], subprocess.DEVNULL
    process = subprocess.Popen(command, env=subprocess_env, stdout=quiet, stderr=quiet)
    yield
    process.terminate()
    process.wait(120)
