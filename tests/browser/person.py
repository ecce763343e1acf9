"""A person on call: looks, tabs to what they want and presses keys. Everything is checked on the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

_AXE = Path(__file__).parent / "axe" / "axe.min.js"
_IMAGES = os.environ.get("BROWSER_IMAGES")
#: Seconds that something may take, and stops of the tab key that a page may have.
_PATIENCE = 20.0
_STOPS = 250

_SEEN = """
const style = getComputedStyle(document.activeElement);
return style.outlineStyle !== "none" || style.boxShadow !== "none" || style.textDecorationLine.includes("underline");
"""
#: Ways to other pages that lie on one another.
_OVERLAPS = """
const boxes = [...document.querySelectorAll(".lq-nav a, .object-tools a")].map(a => [a, a.getBoundingClientRect()]);
return boxes.flatMap(([a, r], n) => boxes.slice(n + 1)
    .filter(([, s]) => r.left < s.right && s.left < r.right && r.top < s.bottom && s.top < r.bottom)
    .map(([b]) => `${a.textContent} and ${b.textContent}`));
"""
_CHECK = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]})
    .then(found => done(found.violations), error => done([{id: String(error)}]));
"""


class Person:
    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver = driver
        self.address = address

    def open(self, path: str) -> None:
        self.driver.get(self.address + path)

    def sign_in(self) -> None:
        User.objects.create_superuser("oncall", password="evening")
        self.open("/admin/")
        self.type("#id_username", "oncall")
        self.type("#id_password", "evening")
        self.press(Keys.ENTER)
        self.wait_for("Site administration")

    def press(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def go(self, page: str) -> None:
        """To a page of the queues and jobs, by their navigation."""
        self.choose(f"//nav[@aria-label='Queues and jobs']//a[text()='{page}']")

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def find(self, where: str) -> WebElement | None:
        """Return the first element of a CSS selector, or of an XPath that begins with ``//``."""
        found = self.driver.find_elements(By.XPATH if where.startswith("//") else By.CSS_SELECTOR, where)
        return found[0] if found else None

    def tab_to(self, where: str) -> WebElement:
        """Press the tab key until the element has the focus; it must be seen to have it."""
        self.wait_until(lambda: self.find(where) is not None, f"there is no {where}")
        for _ in range(_STOPS):
            active = self.driver.switch_to.active_element
            if active == self.find(where):
                assert self.run(_SEEN), f"the focus on {where} cannot be seen"
                return active
            self.press(Keys.TAB)
        raise AssertionError(f"the tab key does not reach {where}")

    def choose(self, where: str) -> None:
        """Tab to a link or button and press Enter; wait until the page that it leads to is there."""
        before = self.run("return performance.timeOrigin")
        self.tab_to(where)
        self.press(Keys.ENTER)
        self.wait_until(
            lambda: (
                self.run("return performance.timeOrigin") != before
                and self.run("return document.readyState") == "complete"
            ),
            f"{where} leads nowhere",
        )

    def type(self, where: str, text: str) -> None:
        """Tab to a field and put this text in place of what is there."""
        self.tab_to(where)
        ActionChains(self.driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).perform()
        self.press(Keys.DELETE, text)

    @property
    def text(self) -> str:
        return str(self.run("return document.body ? document.body.innerText : ''"))

    def wait_for(self, words: str) -> None:
        self.wait_until(lambda: words in self.text, lambda: f"{words!r} does not come; there is:\n{self.text}")

    def wait_until(self, condition: Callable[[], Any], why: str | Callable[[], str]) -> None:
        end = time.monotonic() + _PATIENCE
        while True:
            with suppress(WebDriverException):  # a page goes away while it is looked at
                if condition():
                    return
            assert time.monotonic() < end, why() if callable(why) else why
            time.sleep(0.05)

    def check(self, picture: str | None = None) -> None:
        """Check the page: nothing refused by the policy, no error, no serious barrier; and take a picture of it."""
        said = [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]
        # The test project has no icon, and a form that is refused answers 400.
        errors = [line for line in said if "/favicon.ico" not in line and "status of 400" not in line]
        assert not errors, errors
        assert self.run(_OVERLAPS) == []
        for scheme in ("light", "dark"):
            self.scheme(scheme)
            self.run(_AXE.read_text(encoding="utf-8"))
            found = self.driver.execute_async_script(_CHECK)
            serious = [
                f"{each['id']}: {each.get('help')}: {[node['html'][:160] for node in each.get('nodes', [])][:4]}"
                for each in found
                if each.get("impact") in ("serious", "critical", None) or each["id"] == "landmark-unique"
            ]
            assert not serious, f"{self.driver.current_url}, {scheme}: {serious}"
            if picture and _IMAGES and scheme == "light":
                self._picture(f"{picture}.png")
        self.scheme("light")
        self.driver.get_log("browser")  # what the policy refuses axe itself

    def widen(self, width: int) -> None:
        """Show the page as wide as this, narrower than the window of a browser can be."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        moving = "return document.getAnimations().length"
        self.wait_until(lambda: self.run(moving) == 0, "colours do not come to rest")

    def _picture(self, name: str) -> None:
        height = min(int(self.run("return document.documentElement.scrollHeight")), 1_600)
        self.driver.set_window_size(1280, max(height, 600) + 150)
        Path(str(_IMAGES)).mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(Path(str(_IMAGES)) / name))
        self.driver.set_window_size(1280, 900)
