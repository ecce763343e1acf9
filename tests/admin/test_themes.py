"""What lets the pages stand under any theme of Django's admin; the themes themselves are hosts (``tests/hosts``)."""

import re
from pathlib import Path
from typing import Any

import pytest

import django_leasequeue
from tests.admin.letters import bury
from tests.admin.pages import admin_url, boss

_STATIC = Path(django_leasequeue.__file__).parent / "static" / "leasequeue"
#: What a theme may leave out: all but the blocks of the styles and of the content.
_BARE = "<title>{{ title }}</title>{% block extrastyle %}{% endblock %}{% block content %}{% endblock %}"


@pytest.mark.parametrize("sheets", [("admin.css", "triage.css"), ("report.css",)])
def test_every_variable_of_a_stylesheet_is_its_own_or_has_a_fallback(sheets: tuple[str, ...]) -> None:
    text = "".join(re.sub(r"/\*.*?\*/", "", (_STATIC / name).read_text(), flags=re.DOTALL) for name in sheets)
    own = set(re.findall(r"(--[\w-]+)\s*:", text))
    used = re.findall(r"var\(\s*(--[\w-]+)\s*([,)])", text)
    assert own
    assert {name for name, end in used if end == ")"} <= own
    # Django's variables are named where ours are made of them, and nowhere else.
    lines = [
        line.strip()
        for line in text.splitlines()
        for name in re.findall(r"var\(\s*(--[\w-]+)", line)
        if name not in own
    ]
    assert [line for line in lines if not line.startswith("--lq-")] == []


def test_every_stylesheet_is_looked_at() -> None:
    assert {each.name for each in _STATIC.glob("*.css")} == {"admin.css", "triage.css", "report.css"}


@pytest.fixture
def bare(settings: Any) -> None:
    (engine,) = settings.TEMPLATES
    loaders = [
        ("django.template.loaders.locmem.Loader", {"admin/base_site.html": _BARE}),
        "django.template.loaders.app_directories.Loader",
    ]
    options = {**engine["OPTIONS"], "loaders": loaders}
    settings.TEMPLATES = [{**engine, "APP_DIRS": False, "OPTIONS": options}]


@pytest.mark.django_db
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("page", "wanted"), [
    ("overview", ["data-lq-pause"]),
    ("deadletters", ["data-lq-pause", "Export CSV", 'value="discard"']),
    ("recurringtask_changelist", ["data-lq-pause", "/recurringtask/add/", "<title>Recurring tasks</title>"]),
    ("recurringtask_add", ['name="schedule"']),
    ("operatoraction_changelist", ["Export CSV"]),
    ("apikey_changelist", ["/apikey/add/"]),
])  # fmt: skip
def test_navigation_and_buttons_are_in_the_block_that_every_theme_shows(page: str, wanted: list[str]) -> None:
    bury(1)
    html = boss().get(admin_url(page)).content.decode()
    for each in ('class="lq-nav"', "leasequeue/admin.css", *wanted):
        assert each in html, each
