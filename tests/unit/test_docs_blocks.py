"""Each code block of the documentation can be read by what it is for. Many pages are run by other tests."""

from __future__ import annotations

import ast
import configparser
import doctest
import json
import re
import runpy
import subprocess
import tomllib
from collections.abc import Callable

import pytest
import yaml

from tests.support.documents import DOCS, Block, blocks

PAGES = [*sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")), "../README.md"]
#: Other languages: examples of them are run by tests of their pages, where the language is there.
ELSEWHERE = {"", "text", "js", "go", "sql", "http", "console", "nginx", "csv", "promql", "dockerfile", "sse"}


def read_python(text: str) -> None:
    if text.lstrip().startswith(">>>"):
        for example in doctest.DocTestParser().get_examples(text):
            compile(example.source, "<example>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return
    compile(text, "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def read_shell(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def read_ini(text: str) -> None:
    joined = re.sub(r"\\\n\s*", " ", text)
    configparser.ConfigParser(strict=False, interpolation=None).read_string(joined)


def read_yaml(text: str) -> None:
    list(yaml.safe_load_all(text))


READERS: dict[str, Callable[[str], object]] = {
    "python": read_python,
    "sh": read_shell,
    "shell": read_shell,
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": read_yaml,
    "ini": read_ini,
}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_can_be_read(page: str) -> None:
    wrong = [told for block in blocks(page) if (told := mistake(block))]
    assert not wrong, "\n".join(wrong)


def mistake(block: Block) -> str:
    if block.language in ELSEWHERE:
        return ""
    try:
        READERS[block.language](block.text)
    except KeyError:
        return f"line {block.line}: nothing reads {block.language!r}"
    except (SyntaxError, ValueError, AssertionError, yaml.YAMLError, configparser.Error) as error:
        return f"line {block.line}: {error}"
    return ""


def test_a_mistake_is_found() -> None:
    for language, text in (
        ("python", "@task()\n"), ("sh", "if true\n"), ("json", "{,}"), ("toml", "a = "), ("yaml", "a: [1"),
        ("ini", "x"), ("cobol", ""),
    ):  # fmt: skip
        assert mistake(Block(language, "", text, 1)), language


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)\)", index))
    assert {page for page in PAGES if not page.startswith(("README", "..", "explanation/decisions"))} - linked == set()


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


def test_the_site_shows_blocks_with_words_for_tests() -> None:
    found = runpy.run_path(str(DOCS.parent / "scripts/mkdocs_hooks.py"))["on_page_markdown"]
    assert found("```python file=a.py\nb c\n```\n```http 200\n```\n") == "```python\nb c\n```\n```http\n```\n"
