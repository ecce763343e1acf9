"""What the documents name exists: files, names of Python, settings, options, words with ``leasequeue_``."""

import importlib
import re
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands

from django_leasequeue import conf
from tests.support.sections import sections

BASE = Path(settings.BASE_DIR)
#: Decisions are history: they name what there was.
PAGES = [
    *(path for path in (BASE / "docs").rglob("*.md") if not path.name.startswith("20")),
    *(BASE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
]
#: Where a file may be that a page names without its whole path.
ROOTS = [BASE, BASE / "django_leasequeue", BASE / "docs", BASE / "tests"]
#: Files of the reader's project.
READERS = re.compile(r"(shop|mysite|app|reports)/|^/|^~")
#: Options of other programs, and properties of CSS. Pages about moving name those of what one comes from.
OTHERS = {
    "--nomigrations", "--py-files", "--deploy-mode", "--timeout-graceful-shutdown", "--timeout-keep-alive",
    "--button-bg", "--link-fg",
}  # fmt: skip


@cache
def source() -> str:
    """Return everything that the package, its client, the test project and the scripts say."""
    folders = (
        "django_leasequeue",
        "client_dist",
        "testproject",
        "scripts",
        "tests/soak",
        "tests/hosts",
        "tests/spark",
        ".ci",
    )
    files = (path for folder in folders for path in (BASE / folder).rglob("*") if path.is_file())
    kept = (path for path in files if path.suffix in (".py", ".sql", ".html", ".sh", ".toml", ""))
    return "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in kept)


@cache
def words() -> set[str]:
    return set(re.findall(r"[a-z][a-z_]*", source().lower()))


def named(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def file_is_missing(text: str) -> bool:
    found = re.fullmatch(r"([\w.-]+/[\w./-]+\.(?:py|sql|md|html|css|js|toml|yml))(?:[: ].*)?", text)
    return found is not None and not READERS.match(found[1]) and not any((root / found[1]).exists() for root in ROOTS)


def python_name_is_missing(text: str) -> bool:
    found = re.fullmatch(r"(?:from )?(django_leasequeue(?:\.\w+)+)(?:\(.*\))?", text)
    if found is None or f'"{found[1]}"' in source():  # also the name of a logger
        return False
    parts = found[1].split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("django_leasequeue"):
                return False  # it is there, and wants an extra that is not installed
            continue
        for name in parts[end:]:
            if not hasattr(value, name):
                return True
            value = getattr(value, name)
        return False
    return True


def setting_is_missing(text: str) -> bool:
    found = re.match(r'LEASEQUEUE\["(\w+)"\](?:\["(\w+)"\])?', text)
    if found is None:
        return False
    known = {name: conf.keys(kind) for name, kind in sections().items()}
    if found[1] not in known["LEASEQUEUE"]:
        return True
    return found[2] is not None and found[1] in known and found[2] not in known[found[1]]


def word_is_missing(text: str) -> bool:
    """Commands, tables, functions, metrics (which code names without the prefix) and addresses of admin pages."""
    for word in re.findall(r"\bleasequeue_[a-z_]*[a-z]\b", text):
        bare = re.sub(r"^leasequeue_((lake|worker)_)?|_(total|add|change|delete|changelist)$", "", word)
        if word not in get_commands() and not {word, bare, f"leasequeue_{bare}"} & words():
            return True
    return False


def option_is_missing(text: str) -> bool:
    found = re.match(r"(--[a-z][a-z-]+)", text)
    if found is None or found[1] in OTHERS:
        return False
    return found[1] not in source() and found[1][2:].replace("-", "_") not in source()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(BASE)))
@pytest.mark.parametrize("missing", [
    file_is_missing, python_name_is_missing, setting_is_missing, word_is_missing, option_is_missing,
])  # fmt: skip
def test_what_a_page_names_exists(page: Path, missing: object) -> None:
    assert callable(missing)
    if missing is option_is_missing and page.name.startswith("move-from-"):
        return
    assert [text for text in named(page) if missing(text)] == []


def test_a_name_that_is_not_there_is_found() -> None:
    assert file_is_missing("engine/no_such_file.py")
    assert python_name_is_missing("django_leasequeue.no_such_name")
    assert setting_is_missing('LEASEQUEUE["NO_SUCH_SETTING"]')
    assert word_is_missing("leasequeue_no_such_word")
    assert option_is_missing("--no-such-option")
