"""What the reference must name; what the pages about moving say; each code block can be read by what it is for."""

import configparser
import inspect
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import BaseCommand, CommandParser, get_commands, load_command_class
from django.db import connection
from django.dispatch import Signal

import django_leasequeue
from django_leasequeue import BufferedQueue, ClaimedJob, Consumer, Heartbeat, NewJob, Queue, conf, exceptions, signals
from django_leasequeue.compat import jobqueue, jqueue
from django_leasequeue.conf.queue_options import OPTIONS
from django_leasequeue.engine.queues.presets import PRESETS
from django_leasequeue.enums import EventKind
from django_leasequeue.management.commands.runworker import Command
from django_leasequeue.models import ApiScope
from django_leasequeue.queue.enqueue import JobOptions
from django_leasequeue.queue.function_handler import Execution
from django_leasequeue.queue.outcomes import Finished, JobStatus, Receipt
from django_leasequeue.tasks import Backoff
from django_leasequeue.testing import _HOMES, Harness, Ran, Seen
from django_leasequeue.worker.control import JobControl
from tests.support.documents import DOCS, Block, blocks
from tests.support.readers import READERS
from tests.support.sections import sections

REFERENCE = Path(settings.BASE_DIR) / "docs/reference"


def words_missing(page: str, words: list[str]) -> list[str]:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return [word for word in words if f"`{word}`" not in text and f"| {word} |" not in text]


@pytest.mark.parametrize(("name", "kind"), sections().items())
def test_every_setting_with_what_it_may_be_and_its_default(name: str, kind: type[Any]) -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    table = text if name == "LEASEQUEUE" else re.split(rf"^##+ {name}$", text, maxsplit=1, flags=re.MULTILINE)[1]
    table = re.split(r"^##", table, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"^\| `(\w+)` \| (.+?) \| `(.+?)` \|", table, re.MULTILINE)
    rows = {key: (values, default) for key, values, default in found}
    assert list(rows) == list(conf.keys(kind))
    for key, (item, hint) in conf.keys(kind).items():
        values, default = rows[key]
        assert values == conf.words(hint), key
        value = eval(re.sub(r"(?<=\d),(?=\d)", "_", default))
        assert conf.parse(kind, {key: value}, name, []) == kind(), key
        assert is_dataclass(hint) or type(value) in (type(conf.default(item)), list), key


def test_the_ten_commonest_problems_have_commands_that_run_so() -> None:
    page = (REFERENCE.parent / "how-to/troubleshooting.md").read_text(encoding="utf-8")
    table = page.partition("## The ten commonest")[2].partition("\n## ")[0]
    problems = [line.split(" | ") for line in table.splitlines() if line.startswith("| **")]
    assert len(problems) == 10
    for seen, run, then in problems:
        calls = re.findall(r"`(?:manage\.py )?((?:leasequeue_\w+|runworker) [^`]+)`", f"{run} {then}")
        assert calls or re.search(r"`(manage\.py|curl) ", run), seen
        for call in calls:
            name, *words = call.split()
            load_command_class("django_leasequeue", name).create_parser("manage.py", name).parse_args(words)


def test_every_option_of_queues_and_jobs_preset_and_kind_of_event() -> None:
    assert words_missing("queue-options.md", [*OPTIONS, *PRESETS]) == []
    assert words_missing("events.md", [kind.label for kind in EventKind]) == []
    assert f"`NewJob{signature(NewJob.__new__)}`" in PYTHON
    assert [name for name in JobOptions.__annotations__ if f"| `{name}` |" not in PYTHON] == []


def options_of(parser: CommandParser) -> Iterator[str]:
    """The options of a command and of its parts, without those that every command has."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for part in action.choices.values():
                yield from options_of(part)
        yield from (word for word in action.option_strings if word.startswith("--"))


def test_every_command_and_its_options() -> None:
    common = set(options_of(BaseCommand().create_parser("manage.py", "none"))) | {"--skip-checks", "--help"}
    pages = {path.name: path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md")}
    names = [name for name, app in get_commands().items() if app == "django_leasequeue"]
    assert len(names) > 8
    for name in names:
        assert f"`{name}`" in pages["commands.md"], name
        found = "".join(text for text in pages.values() if name in text)
        command = load_command_class("django_leasequeue", name)
        for option in set(options_of(command.create_parser("manage.py", name))) - common:
            assert option in found, f"{name} {option}"


PAGES = sorted(path.name for path in (DOCS / "how-to").glob("move-from-*.md"))


def ours(page: str) -> list[str]:
    text = (DOCS / "how-to" / page).read_text(encoding="utf-8")
    return [line.strip("| ").split(" | ")[-1] for line in text.splitlines() if re.match(r"\| (?!---)", line)][1:]


@pytest.mark.parametrize("page", PAGES)
def test_a_table_says_what_becomes_what_and_the_worker_has_the_options_that_are_named(page: str) -> None:
    cells = ours(page)
    assert len(cells) >= 8
    actions = Command().create_parser("manage.py", "runworker")._actions
    known = {word for action in actions for word in action.option_strings}
    assert {option for cell in cells for option in re.findall(r"`[^`]*?(--[a-z-]+)", cell)} <= known


def test_the_waits_of_procrastinate_and_ours() -> None:
    """Its ``exponential_wait=2`` waits 2, 4, 8 seconds; its ``max_attempts`` counts the tries after the first."""
    assert [Backoff("exponential", base=1).delay(attempt) for attempt in (1, 2, 3)] == [2, 4, 8]
    assert [Backoff("linear", base=3).delay(attempt) for attempt in (1, 2, 3)] == [3, 6, 9]
    page = (DOCS / "how-to/move-from-procrastinate.md").read_text(encoding="utf-8")
    assert "RetryStrategy(max_attempts=5, exponential_wait=2)" in page
    assert 'max_attempts=6, backoff=Backoff("exponential", base=1)' in page


PYTHON = (DOCS / "reference/python-api.md").read_text(encoding="utf-8")
#: What the parts of this package use of each other.
INTERNAL = {"beaten", "abort", "error", "find_step", "take_progress", "keep_progress", "on_lost"}
#: The page's sections: what is said of one class is not looked for in another.
PYTHON_SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", PYTHON, flags=re.MULTILINE)[1:]}


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name not in INTERNAL]


def signature(function: Any) -> str:
    """Return the parameters as the page shows them: without ``self`` and annotations."""
    whole = inspect.signature(function)
    parameters = [
        item.replace(annotation=inspect.Parameter.empty)
        for item in whole.parameters.values()
        if item.name not in ("self", "_cls")
    ]
    shown = str(whole.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r"=<object object at [^>]*>", "=<any>", shown)


def test_every_name_of_the_package_error_and_signal() -> None:
    names = [name for name in dir(django_leasequeue) if name in django_leasequeue._HOMES]
    assert set(names) == {
        "BufferedQueue", "ClaimedJob", "Consumer", "EmbeddedWorker", "Heartbeat", "Limit", "NewJob", "Queue",
        "progress_view", "with_worker",
    }  # fmt: skip
    assert not hasattr(django_leasequeue.testing, "Nothing")
    assert [name for name in [*names, *_HOMES] if f"`{name}" not in PYTHON and f" {name}" not in PYTHON] == []
    errors = [name for name, kind in vars(exceptions).items() if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert [name for name in errors if f"`{name}`" not in PYTHON_SECTIONS["Errors"]] == []
    sent = [name for name, value in vars(signals).items() if isinstance(value, Signal)]
    assert sent
    assert words_missing("signals.md", sent) == []


@pytest.mark.parametrize(("kind", "section"), [
    (Queue, "Queue"), (BufferedQueue, "BufferedQueue"), (Heartbeat, "Heartbeat"), (Consumer, "Consumer"),
    (JobControl, "JobControl"), (Harness, "Testing"),
])  # fmt: skip
def test_every_class_and_method_with_its_parameters(kind: type, section: str) -> None:
    text = PYTHON_SECTIONS[section]
    missing = []
    if kind is not JobControl:  # which hosts do not make
        assert f"`{kind.__name__}{signature(kind.__init__)}`" in PYTHON  # type: ignore[misc]  # of the class
    for name in public(kind):
        member = inspect.getattr_static(kind, name)
        # A twin has no line of its own: it is called like the method that it is the twin of.
        if name.startswith("a") and hasattr(kind, name[1:]):
            assert inspect.signature(member).parameters == inspect.signature(getattr(kind, name[1:])).parameters
        elif callable(member):
            missing += [] if f"`{name}{signature(member)}`" in text else [f"{name}{signature(member)}"]
        elif f"`{name}`" not in text:
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize(("names", "section"), [
    (Receipt._fields, "Receipt"), (Finished._fields, "Queue"), (public(ClaimedJob), "ClaimedJob"),
    (public(JobStatus), "JobStatus"), ([item.name for item in fields(Execution)], "Consumer"), (Ran._fields, "Testing"),
    (Seen._fields, "Testing"),
])  # fmt: skip
def test_every_field(names: Any, section: str) -> None:
    assert [name for name in names if f"`{name}`" not in PYTHON_SECTIONS[section]] == []


@pytest.mark.parametrize("module", [jqueue, jobqueue])
def test_every_name_of_the_facades(module: Any) -> None:
    text = PYTHON_SECTIONS["Other libraries' names"].split("\n\n")
    [part] = [part for part in text if module.__name__ in part]
    assert [name for name in module.__all__ if f"`{name}`" not in part] == []


EVERY_PAGE = [*sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")), "../README.md"]
#: Languages whose blocks are run by the tests of these pages: on another page nobody would read them.
RUN_ELSEWHERE = {
    "http": ["reference/http-topics.md", "reference/http-zaqar.md"], "sse": ["reference/http-topics.md"],
}  # fmt: skip


@pytest.mark.parametrize("page", EVERY_PAGE)
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
#: Pages whose own tests run their SQL.
RUN = ["how-to/enqueue-from-sql.md"]
#: Grants are tried by the tests of the lake and of the reaper, with roles that have nothing else.
GRANTS = {"reference/lake.md": "GRANT SELECT ", "reference/grants.md": "GRANT USAGE ON"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "page", [page for page in EVERY_PAGE if page not in RUN and any(block.language == "sql" for block in blocks(page))]
)
def test_the_database_understands_the_sql(page: str) -> None:
    if page in GRANTS:
        (granted,) = [block.text for block in blocks(page) if block.language == "sql"]
        assert granted.startswith(GRANTS[page])
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


def test_index_and_menu_lead_to_every_page_and_the_site_shows_blocks_with_words_for_tests() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)\)", index))
    assert {
        page for page in EVERY_PAGE if not page.startswith(("README", "..", "explanation/decisions"))
    } - linked == set()
    found = runpy.run_path(str(DOCS.parent / "scripts/mkdocs_hooks.py"))["on_page_markdown"]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/limits.md"), meta={})
    text = "```python file=a.py\n{}b c\n```\n```http 200\n```\n"
    for comment in ("", "# a.py\n"):
        assert found(text.format(comment), page=page) == '```python title="a.py"\nb c\n```\n```http\n```\n'
    menu = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if not path.name.startswith("20")]
    assert [page for page in pages if f" {page}\n" not in menu] == []


@pytest.mark.parametrize("page", EVERY_PAGE)
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


def test_security_says_how_to_report_and_what_each_scope_and_right_opens() -> None:
    text = (DOCS.parent / "SECURITY.md").read_text(encoding="utf-8")
    _, report, promised, key, role, *_ = re.split(r"^## ", text, flags=re.MULTILINE)
    assert "Report a vulnerability" in report and promised.startswith("What is promised")  # noqa: PT018
    assert [scope for scope in ApiScope.values if f"| `{scope}`" not in key] == []
    assert [right for right in ("SELECT", "INSERT", "UPDATE", "DELETE") if f"`{right}`" not in role] == []


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
