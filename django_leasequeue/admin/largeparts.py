"""Payloads and results that stand in a storage, as a job's page shows them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, TypeVar

from ..engine.large import store
from ..engine.large.reference import is_reference, parse
from ..engine.operation import BLOCKING, Steps

R = TypeVar("R", bound=tuple[Any, ...])

_PLACES = (("data_json", "data_bytes", "body_bytes"), ("result_json", "result_bytes", "result_body_bytes"))


def shown_steps(facts: R, limit: int) -> Steps[R]:
    """Steps that return a job's row with the JSON that stands in a storage, up to ``limit`` bytes, and all sizes.

    What cannot be had is shown as ``{"$lost": why}``: the rest of the page is there all the same.
    """
    row: Any = facts
    for json_name, size_name, body_name in _PLACES:
        text = getattr(row, json_name)
        if not is_reference(text):
            continue
        kept = parse(text)
        shown: dict[str, Any] = {json_name: kept.inline, size_name: len(kept.inline) if kept.inline else None}
        if kept.body is not None:
            shown[body_name] = kept.body.size
        if kept.data is not None:
            shown[size_name] = kept.data.size
            if kept.data.size <= limit:
                (((content,),),) = yield BLOCKING, {"call": partial(store.read, [kept.data])}
                lost = not isinstance(content, bytes)
                shown[json_name] = json.dumps({"$lost": str(content)}) if lost else content.decode()
        row = row._replace(**shown)
    return row
