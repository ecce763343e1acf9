"""The pages in German: nothing on them is English, confirmations are typed as shown, numbers are written so."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import polib
import pytest
from django.test import Client

from django_leasequeue import engine
from django_leasequeue.admin import deadletters
from django_leasequeue.models import BulkOperation, Queue
from tests.admin.letters import bury, graves
from tests.admin.pages import admin_url, boss
from tests.engine.helpers import make, put
from tests.hosts.pages import furnish
from tests.messages import LOCALE
from tests.support.rows import rows

pytestmark = pytest.mark.django_db

GERMAN = polib.pofile(str(LOCALE / "de/LC_MESSAGES/django.po"))


@pytest.fixture
def client(settings: Any) -> Client:
    """Return a superuser whose browser prefers German."""
    after = settings.MIDDLEWARE.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[:after], "django.middleware.locale.LocaleMiddleware", *settings.MIDDLEWARE[after:],
    ]  # fmt: skip
    browser = boss()
    browser.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    return browser


class Texts(HTMLParser):
    """The texts of a page and of its attributes, without code, examples and what a job holds."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.skipped: list[str] = []
        self.feed(body)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = ("id", "queue-raw") in attrs  # options as the API names them
        if raw or tag in ("code", "script", "style", "pre", "textarea", "datalist"):
            self.skipped.append(tag)
        self.found += [
            value for name, value in attrs if name in ("aria-label", "title", "placeholder", "data-label") and value
        ]

    def handle_endtag(self, tag: str) -> None:
        if self.skipped and tag == self.skipped[-1]:
            self.skipped.pop()

    def handle_data(self, data: str) -> None:
        if not self.skipped and (text := " ".join(data.split())):
            self.found.append(text)


def _patterns() -> Iterator[re.Pattern[str]]:
    """Yield what the English texts match that are not the same in German."""
    for entry in GERMAN:
        for text in filter(None, (entry.msgid, entry.msgid_plural)):
            if text not in (entry.msgstr, *entry.msgstr_plural.values()):
                parts = re.split(r"%\(\w+\)s|\{\w+(?:![rs])?\}|%%", text.strip())
                if any(re.search(r"[A-Za-z]{3}", part) for part in parts):
                    yield re.compile(".{1,60}".join(re.escape(part) for part in parts), re.DOTALL)


PATTERNS = list(_patterns())
#: Names of the test's own data, and codes that are the same in every language.
CODES = {"work", "work.dead", "retry", "discard", "export", "data", "meta", "name", "key", "boss", "done", "JSON Lines"}


def english(body: str) -> list[str]:
    return [
        text for text in Texts(body).found
        if text not in CODES and any(pattern.fullmatch(text) for pattern in PATTERNS)
    ]  # fmt: skip


@pytest.mark.slow  # it asks for every page
def test_no_page_has_an_english_text(client: Client) -> None:
    addresses = [address for _, address, _ in furnish()]
    addresses += [admin_url("job_changelist", **query) for query in ({"q": "nothing"}, {"state": "sleeping"})]
    addresses += [admin_url("job_changelist", since="1h"), admin_url("overview", wrong="1")]
    client.post(admin_url("queue_act", make("idle")), {"action": "pause"})
    found = {}
    for address in addresses:
        body = client.get(address).content.decode()
        assert '<html lang="de"' in body, address
        if texts := english(body):
            found[address] = texts
    assert not found, found


def test_what_is_typed_is_what_the_page_shows(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadletters, "TYPED", 1)
    graves()
    bury(3)
    asked: dict[str, Any] = {"action": "discard", "scope": "filter", "filter": "queue=work", "reason": "old"}
    confirm = client.post(admin_url("deadletters_act"), asked)
    body = confirm.content.decode()
    (phrase,) = re.findall(r"tippen Sie: <strong>([^<]*)</strong>", body)
    (shown,) = re.findall(r'name="shown" value="([^"]*)"', body)
    assert phrase == "3 verwerfen"
    sent = {**asked, "confirmed": "1", "shown": shown}
    for typed in ("discard 3", "4 verwerfen", ""):
        refused = client.post(admin_url("deadletters_act"), {**sent, "typed": typed})
        assert refused.status_code == 400
        assert "Tippen Sie „3 verwerfen“" in refused.content.decode()
    assert not BulkOperation.objects.exists()
    done = client.post(admin_url("deadletters_act"), {**sent, "typed": " 3  Verwerfen"})
    assert done.status_code == 302
    assert BulkOperation.objects.get().kind == "discard"


def test_numbers_are_written_as_in_the_language(client: Client) -> None:
    make()
    rows(BulkOperation).create(
        kind="retry", queue="work", frozen_at=engine.clock.now(), created_at=engine.clock.now(), expected=1_234_567
    )
    address = admin_url("bulkoperation_changelist")
    assert ("1.234.567" in client.get(address).content.decode()) is True
    assert "1,234,567" in client.get(address, headers={"accept-language": "en"}).content.decode()


def test_figures_of_the_navigation_are_not_kept_in_another_users_language(client: Client) -> None:
    make()
    put(1)
    address = admin_url("counts")
    assert client.get(address).json()["leasequeue_job_changelist"].endswith("laufen")
    english = client.get(address, headers={"accept-language": "en"}).json()
    assert english["leasequeue_job_changelist"].endswith("running")


def test_migrations_know_nothing_of_the_language(client: Client) -> None:
    from django.core.management import call_command
    from django.utils import translation

    assert str(Queue._meta.verbose_name) == "queue"
    with translation.override("de"):
        assert str(Queue._meta.verbose_name) == "Warteschlange"
    call_command("makemigrations", "leasequeue", check=True, dry_run=True, verbosity=0)
