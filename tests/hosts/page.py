"""The table of ``docs/reference/works-with.md``: a row for each host, with what it last passed with, and when."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from tests.hosts import HOSTS
from tests.support.documents import DOCS

PAGE = DOCS / "reference" / "works-with.md"
_ROW = re.compile(
    r"^\| (?P<title>.+?) \| (?P<note>.*?) \| (?P<versions>.+?) \| (?P<day>\d{4}-\d\d-\d\d|never) \|$", re.MULTILINE
)
_NEVER = "-", "never"
#: Each row begins with the versions of these, without their names: the head of the table has them.
EACH = ("Python", "Django", "psycopg", "PostgreSQL")


def passed() -> dict[str, tuple[str, str]]:
    """Return versions and date of each title that the page has."""
    return {row["title"]: (row["versions"], row["day"]) for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))}


def rows(known: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for host in HOSTS.values():
        versions, day = known.get(host.title, _NEVER)
        yield f"| {host.title} | {host.note} | {versions} | {day} |"


def write(name: str, versions: Mapping[str, str]) -> None:
    """Write the table anew: this host passed today, with these versions."""
    today = datetime.now(UTC).date().isoformat()
    shown = [versions[each] for each in EACH] + [f"{each} {versions[each]}" for each in versions if each not in EACH]
    known = {**passed(), HOSTS[name].title: (", ".join(shown), today)}
    text = PAGE.read_text(encoding="utf-8")
    head, rest = re.split(r"(?<=\|---\|---\|---\|---\|\n)", text, maxsplit=1)
    after = _ROW.sub("", rest).lstrip("\n")
    PAGE.write_text("".join([head, *(f"{row}\n" for row in rows(known)), "\n", after]), encoding="utf-8")
