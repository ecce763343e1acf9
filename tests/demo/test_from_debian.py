"""``scripts/from-debian`` where nothing is to be downloaded."""

import os
import subprocess
from pathlib import Path

from django.conf import settings

SCRIPT = Path(settings.BASE_DIR) / "scripts/from-debian"


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(SCRIPT), folder.name, "usr/bin/tool", "tool"],
        capture_output=True, text=True, check=False, cwd=folder.parent, env={**os.environ, **environment},
    )  # fmt: skip


def test_what_is_there_is_used_again(tmp_path: Path) -> None:
    program = tmp_path / "made" / "usr/bin/tool"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    (tmp_path / "made" / "complete").touch()
    done = run(tmp_path / "made", PATH="")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(program), "")


def test_a_machine_that_is_no_debian_hears_it_and_what_is_there_stays(tmp_path: Path) -> None:
    half = tmp_path / "half" / "usr"
    half.mkdir(parents=True)
    done = run(tmp_path / "half", PATH="")
    assert (done.returncode, done.stdout, half.exists()) == (1, "", True)
    assert done.stderr.startswith("There is no apt-get")
