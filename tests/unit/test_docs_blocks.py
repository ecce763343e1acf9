"""Each code block of the documentation can be read by what it is for. Many pages are run by other tests."""

import configparser
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from django.db import connection

from tests.support.documents import DOCS, Block, blocks
from tests.support.readers import READERS

PAGES = [*sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")), "../README.md"]
#: Languages whose blocks are run by the tests of these pages: on another page nobody would read them.
RUN_ELSEWHERE = {
    "go": ["how-to/external-workers.md"], "js": ["how-to/external-workers.md"],
    "http": ["reference/http-topics.md", "reference/http-zaqar.md"], "sse": ["reference/http-topics.md"],
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_every_block_can_be_read(page: str) -> None:
    wrong = [told for block in blocks(page) if (told := mistake(block, page))]
    assert not wrong, "\n".join(wrong)


def mistake(block: Block, page: str = "") -> str:
    # What a program prints is text; SQL is read by the database, below.
    if block.language in ("text", "sql") or page in RUN_ELSEWHERE.get(block.language, ()):
        return ""
    try:
        READERS[block.language](block.text)
    except KeyError:
        return f"line {block.line}: nothing reads {block.language!r}"
    except (SyntaxError, ValueError, yaml.YAMLError, configparser.Error) as error:
        return f"line {block.line}: {error}"
    return ""


#: Tables of a reader's own that the pages' SQL speaks of.
TABLES = {"how-to/idempotent-consumers.md": "profile (id bigint, name text, version bigint)"}
#: Grants are tried by the tests of the lake, with a role that has nothing else.
GRANTS = ["reference/lake.md"]


@pytest.mark.django_db
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.language == "sql" for block in blocks(page))])
def test_the_database_understands_the_sql(page: str) -> None:
    if page in GRANTS:
        assert [block.text[:13] for block in blocks(page) if block.language == "sql"] == ["GRANT SELECT "]
        return
    with connection.cursor() as cursor:
        if page in TABLES:
            cursor.execute(f"CREATE TEMPORARY TABLE {TABLES[page]} ON COMMIT DROP")
        for block in blocks(page):
            if block.language == "sql":
                # Parameters by name, as drivers take them.
                text = re.sub(r"(?<!:):[a-z]+", "NULL", block.text)
                for statement in filter(str.strip, text.split(";")):
                    if "CREATE INDEX CONCURRENTLY" in statement:  # not in the test's transaction
                        cursor.execute(statement.replace("CONCURRENTLY", ""))
                        continue
                    cursor.execute(f"EXPLAIN {statement}")
                    assert cursor.fetchall()


@pytest.mark.parametrize("page", ["how-to/deploy.md", "how-to/deploy-http.md"])
def test_systemd_takes_the_units(page: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    (unit,) = [block.text for block in blocks(page) if block.language == "ini"]
    name = re.match(r"# /etc/systemd/system/(\S+)\n", unit)
    # It looks for the program, and for the user's directories only when it starts.
    there = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", unit)
    (tmp_path / name[1]).write_text(there, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name[1])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if name[1] in line] == []


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)\)", index))
    assert {page for page in PAGES if not page.startswith(("README", "..", "explanation/decisions"))} - linked == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", (DOCS / page).read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = ((DOCS / page).parent / file) if file else DOCS / page
        assert found.exists(), f"{page} leads to {target}"
        if anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page} leads to {target}"


def test_containers_and_probes_agree() -> None:
    """No Docker runs here: what the files name of each other is compared, and of the worker's own options."""
    found = {block.word.partition("=")[2]: block.text for block in blocks("how-to/containers.md") if block.word}
    compose = yaml.safe_load(found["compose.yaml"])
    worker, web = compose["services"]["worker"], compose["services"]["web"]
    assert worker["build"] == web["build"] == "."
    assert worker["environment"] == web["environment"]
    assert set(worker["depends_on"]) <= set(compose["services"])
    (kubernetes,) = [part for part in yaml.safe_load_all(found["worker.yaml"]) if part["kind"] == "Deployment"]
    pod = kubernetes["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = container["command"]
    port = int(command[command.index("--health-port") + 1])
    assert command[command.index("--health-host") + 1] == "0.0.0.0"
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {port}
    drain = int(command[command.index("--drain-timeout") + 1])
    assert pod["terminationGracePeriodSeconds"] > drain
    from django_leasequeue.management.commands.runworker import Command

    known = Command().create_parser("manage.py", "runworker")
    for words in (command, worker["command"]):
        known.parse_args(words[words.index("runworker") + 1 :])
    steps = re.findall(r"^([A-Z]+) ", found["Dockerfile"], re.MULTILINE)
    assert steps[0] == "FROM"
    assert {"USER", "CMD", "WORKDIR"} <= set(steps)


def test_the_site_shows_blocks_with_words_for_tests_and_has_every_page_in_its_menu() -> None:
    found = runpy.run_path(str(DOCS.parent / "scripts/mkdocs_hooks.py"))["on_page_markdown"]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/limits.md"), meta={})
    text = "```python file=a.py\nb c\n```\n```http 200\n```\n"
    assert found(text, page=page) == "```python\nb c\n```\n```http\n```\n"
    assert page.meta["search"]["boost"] > 1
    menu = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if not path.name.startswith("20")]
    assert [page for page in pages if f" {page}\n" not in menu] == []
