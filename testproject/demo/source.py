"""Reading a Python source file: no database, no queue."""

from __future__ import annotations

import ast
import hashlib
import warnings
from pathlib import Path
from typing import NamedTuple


class Findings(NamedTuple):
    """What is in one file."""

    sha256: str
    size: int
    lines: int
    functions: int
    classes: int
    imports: list[str]


def examine(path: Path) -> Findings:
    """Read and parse a file.

    Raises:
        OSError: it cannot be read.
        SyntaxError, ValueError: it is not Python of this interpreter's version.
    """
    content = path.read_bytes()
    with warnings.catch_warnings():
        # What a file's author should mend is not ours to print.
        warnings.simplefilter("ignore")
        tree = ast.parse(content, filename=path.name)
    functions = classes = 0
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions += 1
        elif isinstance(node, ast.ClassDef):
            classes += 1
        elif isinstance(node, ast.Import):
            imports.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.add("." * node.level + (node.module or ""))
    return Findings(
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        lines=content.count(b"\n") + (not content.endswith(b"\n") and bool(content)),
        functions=functions,
        classes=classes,
        imports=sorted(imports),
    )


def find_sources(directory: Path) -> list[Path]:
    """Return the Python files below a directory, by name, without packages installed into an interpreter's library.

    Raises:
        NotADirectoryError: it is not a directory.
    """
    if not directory.is_dir():
        raise NotADirectoryError(f"{directory} is not a directory.")
    return sorted(
        path
        for path in directory.rglob("*.py")
        if path.is_file()
        and not {"site-packages", "dist-packages", "__pycache__"} & set(path.relative_to(directory).parts)
    )
