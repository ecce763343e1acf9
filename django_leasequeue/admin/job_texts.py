"""The text of a search for jobs: as it is compared with payloads, and not with what is hidden of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..engine import codec
from ..engine.dead.redaction import readable, redact
from ..models import StoredJob
from ..models.base import AsWritten
from . import reading

if TYPE_CHECKING:
    from .job_list import JobHit


def called(text: str | None) -> str | None:
    """Return ``customer=17``, as a list shows an argument, as JSON without spaces; ``None`` where a text is no such."""
    found = re.fullmatch(r"(\w+)\s*=\s*(.+)", text or "")
    if found is None:
        return None
    try:
        value = codec.loads(found[2])
    except ValueError:
        value = found[2]
    pair = f"{codec.dumps(found[1])}:{codec.dumps(value)}"
    return pair.replace(" ", "").replace("}", ",").lower()


def openly(jobs: Sequence[JobHit], text: str | None) -> list[JobHit]:
    """Return the jobs that have the text in a part of the payload that the page shows: a search finds no secrets."""
    if not text:
        return list(jobs)
    stored = StoredJob.objects.using(reading.alias()).filter(pk__in=[job.seq for job in jobs])
    rows = stored.annotate(d=AsWritten("data"), m=AsWritten("meta")).values_list("pk", "d", "m")
    texts = {pk: {"data": data, "meta": meta} for pk, data, meta in rows}
    sought = [each for each in (_packed(text), called(text)) if each]
    return [job for job in jobs if _is_open(job, texts.get(job.seq, {}), sought)]


def _is_open(job: JobHit, texts: Mapping[str, str | None], sought: Sequence[str]) -> bool:
    real = {kind: readable(text) for kind, text in texts.items() if text is not None}
    seen = {kind: redact(value, kind=kind, queue=job.queue, task=job.task) for kind, value in real.items()}
    if seen == real:
        return True
    before, after = ("\n".join(_packed(codec.dumps(each)) for each in values.values()) for values in (real, seen))
    return any(text in after for text in sought) or not any(text in before for text in sought)


def _packed(text: str) -> str:
    """Return a text as the search compares it."""
    return text.lower().replace(" ", "").replace("}", ",")
