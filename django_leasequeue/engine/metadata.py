"""Metadata of jobs: what stands there beside the producer's own: tags, the context of a trace, that of the host.

Jobs are found by their tags, and what a job enqueues while it runs inherits them. Traces are off until ``metrics.otel``
switches them on here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from ..exceptions import InvalidOption
from . import codec
from .limits import MAX_TAG_BYTES, check_text

#: Names in the metadata: of the tags, of the context of a trace (W3C: ``traceparent``, ``tracestate``), and of the
#: context that the host's function has captured (``LEASEQUEUE["CONTEXT"]``).
TAGS, TRACE, CONTEXT = "$tags", "$trace", "$context"
MAX_TAGS = 16
MAX_CONTEXT_BYTES = 8_192

#: The tags of the job that runs in this thread or asyncio task, if it has any.
inherited: ContextVar[dict[str, Any] | None] = ContextVar("leasequeue_tags", default=None)

#: A letter, and at most 63 letters, digits, "-" and single "_" after it.
TAG_NAME = "^(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,63}$"
_is_name = re.compile(TAG_NAME.removesuffix("$") + r"\Z").match


class Noted(dict[str, Any]):
    """Metadata of a job that carry a context, the only ones that may have a name of our own."""


#: Called with project, queue and number of jobs by each call that enqueues, which is its block: it gives the context
#: that the jobs carry. ``None`` while tracing is off.
begin_trace: Callable[[str, str, int], AbstractContextManager[dict[str, str]]] | None = None
#: Called with each worker's handler and project, returns the handler that is used; ``None`` while tracing is off.
wrap_handler: Callable[[Any, str], Any] | None = None


def check_meta(meta: Any, what: str = "meta") -> None:
    """Check the metadata of a job."""
    if not isinstance(meta, dict):
        raise InvalidOption(f"{what} must be a dict; it is a {type(meta).__name__}.")
    for name in meta:
        if isinstance(name, str) and name.startswith("$") and type(meta) is not Noted:
            raise InvalidOption(
                f"{what} must not have names that begin with '$': they are reserved for what the queues note; there is"
                f" {name[:80]!r}."
            )


def check_tags(tags: Any) -> None:
    """Refuse, with ``InvalidOption``, what cannot be the tags of a job."""
    if not isinstance(tags, dict) or len(tags) > MAX_TAGS:
        raise InvalidOption(f'tags are a dict of at most {MAX_TAGS} names, as {{"customer": 7}}; it is {tags!r:.200}.')
    for name, value in tags.items():
        if not isinstance(name, str) or _is_name(name) is None:
            raise InvalidOption(
                "the name of a tag is a letter and at most 63 letters, digits, '-' and single '_' after it; it is"
                f" {name!r:.80}."
            )
        if isinstance(value, str):
            check_text(value, f"the tag {name}", MAX_TAG_BYTES)
        elif not isinstance(value, int) or not -(2**63) <= value < 2**63:
            raise InvalidOption(f"a tag is a text, an integer of 64 bits or a bool; {name} is {value!r:.80}.")


def with_inherited(tags: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return tags with those of the job that runs here; where both have a name, the given value counts."""
    around = inherited.get()
    return tags if around is None else around if not tags else {**around, **tags}


def tags_json(tags: dict[str, Any] | None) -> str | None:
    """Return the tags of a job as the lease log has them, ``None`` without any."""
    return codec.dumps(tags) if tags else None


def noted(meta_json: str | None, name: str) -> dict[str, Any] | None:
    """Return what a job's metadata (JSON text) have under a name of our own, ``None`` if there is nothing."""
    if meta_json is None or f'"{name}"' not in meta_json:
        return None
    meta = codec.loads(meta_json)
    found = meta.get(name) if isinstance(meta, dict) else None
    return found if isinstance(found, dict) else None
