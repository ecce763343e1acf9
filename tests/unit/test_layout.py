"""The package stays as easy to find one's way in as it is."""

import re
from pathlib import Path

import django_leasequeue
from django_leasequeue import sql

ROOT = Path(django_leasequeue.__file__).parent


def test_few_things_stand_at_the_root() -> None:
    entries = {path.name for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert len({name for name in entries if name.endswith(".py")}) <= 8
    assert len(entries) <= 31


def test_every_statement_has_a_name_and_a_header_of_its_own() -> None:
    files = sorted(Path(sql.__file__).parent.rglob("*.sql"))
    assert sorted(sql.path(name) for name in sql.names()) == files
    headers = {name: sql.header(name).keys() for name in sql.names()}
    assert [name for name, said in headers.items() if "Purpose" not in said] == []
    assert [name for name, said in headers.items() if "Parameters" not in said and "%(" in sql.statement(name)] == []


def sources() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


def test_what_runs_under_a_test_is_what_runs_in_production() -> None:
    """Only the test tools know of Django's; they set the switches of ``process``."""
    found = [name for name, text in sources().items() if re.search(r"django\.test\b|_TestState|mail\.outbox", text)]
    assert [name for name in found if not name.startswith("testing/")] == []


def test_state_of_the_process_is_made_in_one_module() -> None:
    """The client is a distribution of its own."""
    state = re.compile(r"register_at_fork|WeakKeyDictionary|sys\.modules\b")
    found = {name for name, text in sources().items() if state.search(text)}
    assert found - {"conf/process.py", "testing/plugin.py"} == set()


def test_one_loader_reads_the_settings() -> None:
    reads = re.compile(r"getattr\((django_)?settings, \"LEASEQUEUE|settings\.LEASEQUEUE|setting_changed")
    assert {name for name, text in sources().items() if reads.search(text)} == {"conf/__init__.py"}


def test_test_modules_import_no_test_modules() -> None:
    """What several of them need is in modules of its own: importing a test module collects its tests twice."""
    imports = re.compile(r"^\s*(?:from|import) [\w.]*\btest_\w+", re.MULTILINE)
    found = {path.name for path in Path(__file__).parents[1].rglob("*.py") if imports.search(path.read_text("utf-8"))}
    assert found == set()
