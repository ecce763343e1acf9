"""What CI makes of pip-audit's report: nothing that was not looked up counts as clean."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

PROGRAM = Path(settings.BASE_DIR) / ".ci" / "advisories"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="a source distribution has no .ci")

FINE = {"name": "django", "version": "6.0", "vulns": []}
HOLE = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.1"]}
ILL = {"name": "left-pad", "version": "2.0", "vulns": [HOLE]}
UNKNOWN = {"name": "ours", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "code", "last"),
    [
        ([FINE, FINE], 0, "2 packages, no known holes"),
        ([FINE, ILL, UNKNOWN], 1, "1 known holes"),
        ([FINE, UNKNOWN], 1, "1 packages were not looked up"),
        ([UNKNOWN, UNKNOWN], 75, "The advisory service knows none of 2 packages here: Dependency not found on PyPI"),
        ([], 75, "The advisory service knows none of 0 packages here: no package was looked at"),
    ],
)
def test_a_report(packages: list[dict[str, Any]], code: int, last: str) -> None:
    judged, lines = runpy.run_path(str(PROGRAM))["judge"]({"dependencies": packages})
    assert (judged, lines[-1]) == (code, last)
    if ILL in packages:
        assert lines[0] == "left-pad 2.0: PYSEC-1 (CVE-1), fixed in 2.1"
