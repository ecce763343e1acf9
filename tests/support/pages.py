"""Running the Python of a how-to, as its reader would."""

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.documents import blocks


def run_page(page: str, monkeypatch: pytest.MonkeyPatch, edit: Callable[[str], str] = str) -> dict[str, Any]:
    """Run the Python of a page, blocks with ``file=a/b.py`` as that module; return the names of the others."""
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language in ("shell", "sql"):
            continue
        assert block.language == "python"
        where = names
        if block.word:
            path = block.word.removeprefix("file=").removesuffix(".py").replace("/", ".")
            package, _, name = path.rpartition(".")
            if package not in sys.modules:
                monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
            module = sys.modules.get(path, types.ModuleType(path))
            monkeypatch.setitem(sys.modules, path, module)
            monkeypatch.setattr(sys.modules[package], name, module, raising=False)
            where = vars(module)
        exec(edit(block.text), where)
    return names
