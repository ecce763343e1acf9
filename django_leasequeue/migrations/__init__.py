"""Migrations: see CONTRIBUTING.md for their rules."""

from pathlib import Path

_FROZEN = Path(__file__).parent / "frozen"


def frozen(name: str, version: int) -> str:
    """Return what made a function of the database in this version of it: the present text is in ``sql/functions/``."""
    return (_FROZEN / f"{name}_{version}.sql").read_text(encoding="utf-8")
