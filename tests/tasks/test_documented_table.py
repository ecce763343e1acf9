"""``docs/reference/tasks.md``: the table of Django's sentences names tests that exist, and notes that are there."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.documents import DOCS

FOLDER = Path(__file__).parent
_SECTION = (DOCS / "reference/tasks.md").read_text(encoding="utf-8").partition("\n## What Django documents\n")[2]
_ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in _SECTION.splitlines()
    if line.startswith("| ") and not line.startswith("| Django says |")
]


def names_in(path: Path) -> set[str]:
    """The ids of the tests of a module, as pytest writes them, without parameters."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    found = [(f"{path.name}::", module.body), *((f"{path.name}::{node.name}::", node.body) for node in classes)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = [(prefix, item.name) for prefix, body in found for item in body if isinstance(item, functions)]
    return {prefix + name for prefix, name in names if name.startswith("test_")}


TESTS = set().union(*(names_in(path) for path in FOLDER.glob("test_*.py")))


def test_there_are_rows_and_every_test_of_djangos_sentences_is_named() -> None:
    assert len(_ROWS) > 60
    sentences = [row[0] for row in _ROWS]
    assert len(sentences) == len(set(sentences))
    own = {name for name in TESTS if name.startswith(("test_documented_tasks.py", "test_documented_results.py"))}
    named = set(re.findall(r"`(test_[^`]+\.py::[^`]+)`", _SECTION))
    assert own - named == set()


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row[0][:60])
def test_a_row_names_tests_that_exist_and_notes_that_are_there(row: list[str]) -> None:
    assert len(row) == 5
    notes = set(re.findall(r"^(\d+)\. ", _SECTION, re.MULTILINE))
    for cell in row[1:4]:
        match = re.fullmatch(r"(?:yes|no|-)(?: \((\d+)\))?", cell)
        assert match, cell
        assert match[1] is None or match[1] in notes
        assert not cell.startswith("no") or match[1], "what does not hold has a note that says why"
    named = re.findall(r"`([^`]+)`", row[4])
    assert named
    assert set(named) <= TESTS
