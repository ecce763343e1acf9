"""Exports as downloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

from django.http import StreamingHttpResponse

from ..engine.dead.export import KINDS


def response(make: Callable[[], Iterator[str]], kind: str, name: str) -> StreamingHttpResponse:
    """Return a streamed download.

    Args:
        make: makes the lines, as the server asks for them.
        kind: ``csv`` or ``jsonl``.
        name: of the file, without its ending.
    """
    lines = make()
    # The names and the first row are made before the answer begins: it can still say that the database is away.
    first = list(islice(lines, 2))
    answer = StreamingHttpResponse(chain(first, lines), content_type=KINDS[kind])
    answer["Content-Disposition"] = f'attachment; filename="{name}.{kind}"'
    answer["Cache-Control"] = "no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer
