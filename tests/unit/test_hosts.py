"""The matrix of hosts and the page that shows it."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from tests.hosts import HOSTS, page, surroundings

FOLDER = Path(page.__file__).parent


def table(text: str) -> list[str]:
    return text.split("|---|---|---|---|\n")[1].partition("\n\n")[0].splitlines()


def test_each_host_has_settings_and_databases_to_stand_on() -> None:
    assert {path.stem.removeprefix("settings_") for path in FOLDER.glob("settings_*.py")} == set(HOSTS)
    assert [name for name, host in HOSTS.items() if not callable(getattr(surroundings, host.surroundings))] == []
    titles = [host.title for host in HOSTS.values()]
    assert len(set(titles)) == len(titles)


def test_the_page_shows_each_host_with_versions_and_the_day_on_which_it_passed() -> None:
    passed = page.passed()
    assert table(page.PAGE.read_text(encoding="utf-8")) == list(page.rows(passed)), "python -m tests.hosts --write-docs"
    for versions, day in passed.values():
        bare = [each for each in versions.split(", ") if each[0].isdigit()]
        assert len(bare) == len(page.EACH)
        assert date.fromisoformat(day) <= datetime.now(UTC).date()


def test_a_run_changes_the_rows_of_those_that_it_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "page.md"
    before = page.PAGE.read_text(encoding="utf-8")
    copy.write_text(before, encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", copy)
    each = {name: f"9.{number}" for number, name in enumerate(page.EACH)}
    page.write("silk", {**each, "django-silk": "7.0"})
    after = copy.read_text(encoding="utf-8")
    ((old, new),) = ((old, new) for old, new in zip(table(before), table(after), strict=True) if old != new)
    assert old.split(" | ")[:2] == new.split(" | ")[:2]
    assert new.endswith(f"| 9.0, 9.1, 9.2, 9.3, django-silk 7.0 | {datetime.now(UTC).date()} |")
    assert after.replace(new, old) == before
