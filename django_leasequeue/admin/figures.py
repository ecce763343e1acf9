"""Numbers as the pages write them."""

from __future__ import annotations

from .. import conf


def capped(count: int, cap: int | None = None) -> str:
    """Return a count of which everything above ``cap`` (by default ``COUNT_CAP``) is an estimate: ``12``, ``10,000+``.

    A count above the cap comes from the newest sample: ``about 123,000``.
    """
    top = cap or conf.settings.COUNT_CAP
    if count <= top:
        return f"{count:,}"
    return f"{top:,}+" if count <= top + 1 else f"about {count:,}"
