"""Finding jobs by their tags."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from ...exceptions import InvalidOption
from ...models.job import JobStatus
from .. import arrays, codec
from ..limits import MAX_PROJECT_BYTES, MAX_QUEUE_BYTES, MAX_SEQ, check_count, check_text
from ..operation import Steps, operation
from ..tags import check_tags, tags_json

#: Jobs of one page.
MAX_PAGE = 1_000
_TAG = re.compile(r"\s*([^=\s]+)\s*=\s*(.*)", re.DOTALL)


class TaggedJob(NamedTuple):
    """A job with its tags. ``error`` is the beginning of its last failure."""

    seq: int
    key: str | None
    queue: str
    task: str | None
    state: str
    tag: str | None
    tags: dict[str, Any]
    deliveries: int
    enqueued_at: datetime
    available_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    error_type: str | None
    error: str | None


def parse_tags(texts: Iterable[str]) -> dict[str, Any]:
    """Return the tags that texts as ``customer=7`` name. A value is a text, unless it is an integer or a bool in JSON.

    Raises:
        InvalidOption: for a text of another form, and a name that is given twice.
    """
    tags: dict[str, Any] = {}
    for text in texts:
        found = _TAG.fullmatch(text)
        if found is None or found[1] in tags:
            raise InvalidOption(f"a tag is a name and a value, as customer=7, each name once; it is {text[:80]!r}.")
        try:
            value = codec.loads(found[2])
        except ValueError:
            value = found[2].strip()
        tags[found[1]] = value if isinstance(value, (str, int)) else found[2].strip()
    return tags


@operation
def tagged_jobs(
    tags: dict[str, Any],
    *,
    project: str = "",
    queue: str | None = None,
    prefixes: tuple[str, ...] = (),
    state: str | None = None,
    below: int | None = None,
    size: int = 50,
) -> Steps[tuple[list[TaggedJob], int | None]]:
    """Return a page of the jobs that have all of these tags, the newest first, and ``below`` of the next page.

    At the end ``below`` is ``None``. A page looks at 1,000 jobs with these tags: with a queue or a state it may be
    short, and have a next.
    """
    check_tags(tags)
    if not tags:
        raise InvalidOption("name one tag at least, as customer=7: only jobs with tags are in their index.")
    if state is not None and state not in JobStatus.values:
        raise InvalidOption(f"a state is one of {', '.join(JobStatus.values)}; it is {state[:40]!r}.")
    check_text(project, "the project", MAX_PROJECT_BYTES, 0)
    if queue is not None:
        check_text(queue, "the queue", MAX_QUEUE_BYTES)
    params = {
        "tags": tags_json(tags),
        "below": MAX_SEQ if below is None else below,
        "project": project,
        "queue": queue,
        "prefixes": arrays.texts(prefixes) if prefixes else None,
        "state": state,
        "size": check_count(size, "size", MAX_PAGE, 1),
    }
    rows = yield "tagged_jobs", params
    jobs = [TaggedJob._make((*row[1:7], codec.loads(row[7]), *row[8:])) for row in rows if row[1] is not None]
    return jobs, rows[0][0]
