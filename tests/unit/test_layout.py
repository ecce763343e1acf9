"""The package stays as easy to find one's way in as it is."""

import ast
import re
from collections import Counter
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

import django_leasequeue
from django_leasequeue import sql
from tests import matrix
from tests.support.environment import python

ROOT = Path(django_leasequeue.__file__).parent


def test_few_things_stand_at_the_root() -> None:
    entries = {path.name for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert len({name for name in entries if name.endswith(".py")}) <= 8
    assert len(entries) <= 32


def test_every_statement_has_a_name_and_a_header_of_its_own() -> None:
    others = ("parts", "functions")
    files = sorted(path for path in Path(sql.__file__).parent.rglob("*.sql") if path.parent.name not in others)
    assert sorted(sql.paths().values()) == files
    headers = {name: re.findall(r"(?m)^-- (\w+).*?: ", path.read_text()) for name, path in sql.paths().items()}
    assert [name for name, said in headers.items() if "Purpose" not in said] == []
    assert [name for name, said in headers.items() if "Parameters" not in said and "%(" in sql.statement(name)] == []
    assert [path for path in files if "{keeps_host_settings()}" in path.read_text()] == [], "it says why"


def test_every_part_of_statements_says_what_it_is_and_is_shared() -> None:
    folder = Path(sql.__file__).parent
    used = Counter(
        name for path in folder.rglob("*.sql") for name in re.findall(r"\{(\w+)\(", path.read_text(encoding="utf-8"))
    )
    parts = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "parts").iterdir()}
    assert [name for name, text in parts.items() if not re.match(rf"-- {name}\((\w+(, \w+)*)?\): \w", text)] == []
    assert [name for name in parts if used[name] < 2] == []
    assert [name for name in sql.paths() if re.search(r"\{\w+\(", sql.statement(name))] == []


def test_the_walks_that_contributing_shows_name_what_is_there() -> None:
    text = (ROOT.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = re.findall(r"`([\w/]+)\.py: ([\w.]+)`", text)
    assert len(steps) >= 20
    for module, name in steps:
        attrgetter(name)(import_module(f"django_leasequeue.{module.replace('/', '.')}"))
    assert [path for path in re.findall(r"`(sql/\w+/\w+\.sql)`", text) if not (ROOT / path).exists()] == []


ENGINE = {"dead", "flow", "jobs", "large", "leases", "queues", "topics", "upkeep"}
#: Statements of other areas that a folder of code may run: they read.
ALSO = {
    "admin": {"metrics", "reaper", "upkeep"}, "checks": {"upkeep"}, "compat": {"upkeep"}, "engine": {"ddl", "lake"},
    "metrics": {"queues", "reaper", "upkeep", "worker"},
    "reaper": {"dead", "jobs", "lake", "large", "metrics", "queues", "upkeep"},
    "spark": {"lake", "notify", "topics", "upkeep"}, "tasks": {"jobs"}, "worker": {"upkeep"},
}  # fmt: skip
WRITES = re.compile(
    r"(?:INSERT INTO|UPDATE|DELETE FROM) leasequeue_"
    r"(?:attempt|claim|deadletter|delayed|job|jobresult|jobstep|leaseevent|member|ready|record)\b"
)


@cache
def statements_run() -> list[tuple[str, str]]:
    """Return the folders of code and the statements that they run."""
    found = []
    names = set(sql.paths())
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            asked: list[ast.expr] = []
            if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
                asked = node.value.elts[:1]
            elif isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                asked = node.args[:2] if called in ("_run", "fetch", "rows", "statement") else []
            asked_for = [one.value for one in asked if isinstance(one, ast.Constant) and one.value in names]
            found += [(path.partition("/")[0], str(name)) for name in asked_for]
    return found


def test_a_folder_runs_the_statements_of_its_own_area() -> None:
    run = statements_run()
    assert len({name for _, name in run}) > 150, "the statements are found"
    for folder, name in run:
        area = sql.paths()[name].parent.name
        own = ENGINE if folder == "engine" else {folder}
        assert area in own | ALSO.get(folder, set()), f"{folder} runs {name}"


def test_only_the_engine_writes_jobs_claims_results_and_events() -> None:
    writing = {name for name in sql.paths() if WRITES.search(sql.statement(name))}
    assert {"claim", "enqueue", "finish", "release"} <= writing
    assert {name for name in writing if sql.paths()[name].parent.name not in ENGINE} == set()
    assert {name for folder, name in statements_run() if folder != "engine"} & writing == set()
    in_code = {path.partition("/")[0] for path, text in sources().items() if WRITES.search(text)}
    assert in_code <= {"engine", "migrations"}


@cache
def sources() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


#: What few modules may do, and which: what runs under a test is what runs in production, one mechanism makes twins.
HOMES = {
    r"django\.test\b|_TestState|mail\.outbox": r"testing/.*",
    r"register_at_fork|WeakKeyDictionary|sys\.modules\b": r"conf/process\.py|testing/plugin\.py",
    r"getattr\((django_)?settings, \"LEASEQUEUE|settings\.LEASEQUEUE|setting_changed": r"conf/__init__\.py",
    # A generator driven by hand: beside twins those of psycopg and of large requests.
    r"except StopIteration": r"twins\.py|engine/(pool|codec|runner)\.py|http/(views|payload)\.py",
}


@pytest.mark.parametrize("pattern", HOMES)
def test_what_few_modules_do(pattern: str) -> None:
    found = [name for name, text in sources().items() if re.search(pattern, text)]
    assert found
    assert [name for name in found if not re.fullmatch(HOMES[pattern], name)] == []


def test_what_runs_on_other_versions_is_there() -> None:
    assert [name for name in sorted(matrix.MODULES) if not (ROOT.parent / f"tests/{name}.py").exists()] == []


def test_names_of_tests_say_what_is_asserted_and_cite_no_rule_by_its_number() -> None:
    tests = Path(__file__).parents[1]
    cited = re.compile(r"^ *(?:async )?(?:def|class) (test_[a-z]{1,2}\d+(?:_\w+)?\b|Test[A-Z]{1,2}\d\w*)", re.MULTILINE)
    assert cited.findall("class TestA1Ack:\n    async def test_a1_ack() -> None:") == ["TestA1Ack", "test_a1_ack"]
    assert [name for path in tests.rglob("*.py") for name in cited.findall(path.read_text(encoding="utf-8"))] == []


def test_test_modules_import_no_test_modules() -> None:
    """What several of them need is in modules of its own: importing a test module collects its tests twice."""
    imports = re.compile(r"^\s*(?:from|import) [\w.]*\btest_\w+", re.MULTILINE)
    found = {path.name for path in Path(__file__).parents[1].rglob("*.py") if imports.search(path.read_text("utf-8"))}
    assert found == set()


def test_statements_are_read_without_django() -> None:
    script = "import sys, django_leasequeue.sql as s; s.statement('lake/any'); print('django' in sys.modules)"
    assert python("-c", script).stdout.strip() == "False"


def test_every_folder_says_who_imports_it_and_where_to_start() -> None:
    for path in ROOT.rglob("__init__.py"):
        if path.parent.name not in ("migrations", "pyspark_leasequeue"):
            said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            assert "\n\n" in said, path
            for name in re.findall(r"`([\w/]+\.py)`", said):
                assert (path.parent / name).exists() or (ROOT / name).exists(), f"{path} names {name}"
