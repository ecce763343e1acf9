"""The documentation's site, opened as a file: its search finds what it should, and nothing comes from elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .person import Person

ROOT = Path(__file__).parents[2]
_FOUND = "return [...document.querySelectorAll('.md-search-result__item > a')].map(link => link.href.split('?')[0])"


@pytest.mark.slow
def test_the_search_of_the_site_works_without_a_server(person: Person, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    for words, page in (("rate limit", "how-to/limits.html"), ("retry backoff", "how-to/retries.html")):
        person.driver.get(f"file://{tmp_path}/index.html")
        person.press("/", *words)  # the key that leads to the search
        person.wait_until(lambda: person.driver.execute_script(_FOUND), "nothing is found")
        assert person.driver.execute_script(_FOUND)[0] == f"file://{tmp_path}/{page}"
        loaded = "return performance.getEntriesByType('resource').map(each => each.name)"
        assert not [each for each in person.driver.execute_script(loaded) if not each.startswith("file:")]
