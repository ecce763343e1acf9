"""PlainJSONField: JSON that is kept as it was written."""

from __future__ import annotations

from typing import Any

from django.db import models


class PlainJSONField(models.JSONField):
    """A ``json`` column: numbers come back as written (``1e300``, ``1.0``), and nothing is parsed on the way in.

    For payloads that no index and no filter looks into: ``jsonb`` would turn 1e300 into 301 digits.
    """

    def db_type(self, connection: Any) -> str:
        return "json"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        # psycopg parses json by itself; Django turns that off for jsonb only.
        return value
