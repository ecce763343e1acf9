import hashlib
from pathlib import Path

import pytest

from testproject.demo.source import examine, find_sources

SOURCE = """\
import os, json.decoder
from . import near
from ..far import thing


class Shape:
    def area(self):
        def inner():
            pass
        return 1


async def later():
    return "\\d"
"""


def test_a_file_is_examined(tmp_path: Path) -> None:
    path = tmp_path / "shape.py"
    path.write_text(SOURCE)
    found = examine(path)
    assert (found.lines, found.functions, found.classes) == (14, 3, 1)
    assert found.imports == [".", "..far", "json.decoder", "os"]
    for content, lines in ((b"", 0), (b"a = 1", 1), (b"a = 1\n", 1), (b"\n\nx = 2", 3)):
        (tmp_path / "file.py").write_bytes(content)
        assert examine(tmp_path / "file.py").lines == lines
    assert (found.size, found.sha256) == (len(SOURCE), hashlib.sha256(SOURCE.encode()).hexdigest())


def test_files_are_found_by_name_without_installed_packages(tmp_path: Path) -> None:
    for name in ("b.py", "a/c.py", "site-packages/x.py", "a/__pycache__/y.py", "a/text.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "directory.py").mkdir()
    assert find_sources(tmp_path) == [tmp_path / "a/c.py", tmp_path / "b.py"]
    with pytest.raises(NotADirectoryError):
        find_sources(tmp_path / "missing")
