"""Hook of mkdocs: fences without the words that are for tests, and pages that a search finds first."""

import re
from typing import Any

#: Pages that answer a question that others mention: found before them.
FIRST = {"how-to/limits.md": 4, "how-to/retries.md": 4, "how-to/workflows.md": 2, "tutorial/first-worker.md": 2}
#: Pages that mention everything: found behind those that explain it.
LAST = {"README.md": 0.5, "reference/docstrings.md": 0.5}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    path = page.file.src_uri
    if boost := FIRST.get(path) or LAST.get(path) or (0.3 if "/decisions/" in path else None):
        page.meta["search"] = {"boost": boost}
    return re.sub(r"^(```[a-z]+) .*$", r"\1", markdown, flags=re.MULTILINE)
