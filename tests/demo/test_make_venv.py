"""``scripts/make-venv`` says in a few lines what it does, and all of it when it fails. pip is a stand-in here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

SCRIPT = Path(settings.BASE_DIR) / "scripts/make-venv"
PIP = """#!{python}
import sys
if sys.argv[1:2] == ["-c"]:
    exec(sys.argv[2])
else:
    for number in range(150):
        print("Collecting package", number)
    print("ERROR: no such package" if {fails} else "Successfully installed everything")
    sys.exit({fails})
"""


def run(tmp_path: Path, *, fails: int, **environment: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "venv/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(PIP.format(python=sys.executable, fails=fails))
    program.chmod(0o755)
    return subprocess.run(
        ["sh", str(SCRIPT), str(tmp_path / "venv"), "test"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, **environment},
    )  # fmt: skip


def test_a_few_lines(tmp_path: Path) -> None:
    done = run(tmp_path, fails=0)
    assert (done.returncode, done.stdout, "Collecting" in done.stderr) == (0, "", False)
    assert len(done.stderr.splitlines()) <= 4
    assert "Installing django-leasequeue[test]" in done.stderr
    assert (tmp_path / "venv/install.log").read_text().count("Collecting") == 150


@pytest.mark.parametrize("verbose", ["", "1"])
def test_a_failure_shows_the_rest(tmp_path: Path, verbose: str) -> None:
    done = run(tmp_path, fails=1, VERBOSE=verbose)
    assert done.returncode == 1
    assert not verbose or run(tmp_path / "well", fails=0, VERBOSE="1").stderr.count("Collecting") == 150
    assert (done.stderr.count("Collecting"), done.stderr.count("ERROR: no such package")) == (150, 1)
    assert "Installing failed" in done.stderr
