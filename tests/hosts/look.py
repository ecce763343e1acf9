"""Chromium before the pages of a host: pictures, wide and narrow, light and dark, and what axe has against them."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

from selenium import webdriver

from tests.browser.conftest import CHROMIUM, DRIVER
from tests.support.ports import free_port
from tests.support.waiting import eventually

_AXE = Path(__file__).parent.parent / "browser" / "axe" / "axe.min.js"
_SCHEMES = ("light", "dark")
_TALLEST = 1_800
#: Only what lies in our part of a page: a theme's own barriers are the theme's.
_CHECK = """
const done = arguments[arguments.length - 1];
if (!document.querySelector(".lq")) done([]);
else axe.run({include: [[".lq"]]}, {resultTypes: ["violations"]})
    .then(found => done(found.violations), error => done([{id: String(error)}]));
"""
_OVER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
_TALL = "return document.documentElement.scrollHeight"
#: Colours that change, and the theme's scripts that lay the page out.
_RESTS = "return document.readyState === 'complete' && document.getAnimations().length === 0"


def _answers(address: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> bool:
    if process.poll() is not None:
        log.seek(0)
        sys.exit(log.read().decode())
    with suppress(OSError):
        urlopen(address).close()
        return True
    return False


@contextmanager
def _server() -> Iterator[str]:
    """The host's pages and its static files."""
    port = free_port()
    command = [sys.executable, "-m", "django", "runserver", "--insecure", "--noreload", str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        address = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: _answers(f"{address}/admin/login/", process, log), "the server's answer")
            yield address
        finally:
            process.terminate()
            process.wait(60)


def _wrong(driver: Any) -> list[str]:
    driver.execute_script(_AXE.read_text(encoding="utf-8"))
    found = [
        f"{each['id']}: {[node['html'][:160] for node in each.get('nodes', [])][:4]}"
        for each in driver.execute_async_script(_CHECK)
        if each.get("impact") in ("serious", "critical", None)
    ]
    over = driver.execute_script(_OVER)
    return [*found, f"{over} pixels wider than the window"] if over > 1 else found


def look(directory: Path, session: str, pages: Sequence[tuple[str, str]], widths: Sequence[int]) -> list[str]:
    """Take a picture of each page (its name and address); return what is wrong with them."""
    directory.mkdir(parents=True, exist_ok=True)
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "lang=en"):
        options.add_argument(f"--{argument}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=str(DRIVER)))

    def window(height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    found: list[str] = []
    try:
        with _server() as address:
            driver.get(f"{address}/admin/login/")
            driver.add_cookie({"name": "sessionid", "value": session})
            for width, scheme in ((width, scheme) for width in widths for scheme in _SCHEMES):
                media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
                for number, (name, page) in enumerate(pages):
                    window(900)
                    driver.get(address + page)
                    eventually(lambda: driver.execute_script(_RESTS), f"{name} at rest")
                    found += [f"{name}, {width}, {scheme}: {each}" for each in _wrong(driver)]
                    window(min(int(driver.execute_script(_TALL)), _TALLEST))
                    driver.save_screenshot(str(directory / f"{number:02}-{name}-{width}-{scheme}.png"))
    finally:
        driver.quit()
    return found
