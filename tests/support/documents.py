"""Code blocks of the documentation, so that tests run what readers copy."""

import re
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

DOCS = Path(settings.BASE_DIR) / "docs"
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, the word after it (``file=worker.py``), its text, and the line it begins at."""

    language: str
    word: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, _, word = match["info"].strip().partition(" ")
        found.append(Block(language, word, match["text"], text.count("\n", 0, match.start()) + 2))
    return found
