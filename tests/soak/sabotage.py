"""``python -m tests.soak.sabotage``: deliberate faults in a copy of the package; the soak has to catch each."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from .promises import INCONSISTENT, LOST, SLOW
from .sabotages import QUIET, SABOTAGES, Sabotage

BASE = Path(__file__).resolve().parents[2]
PACKAGE = "django_leasequeue"
#: What a run needs of the repository.
COPIED = (PACKAGE, "testproject", "tests/__init__.py", "tests/soak", "tests/support", "manage.py", "pyproject.toml")
#: Seconds in which each has to be caught; minutes of faults, and seconds for the rest, that fit into it.
LIMIT, MINUTES, DRAIN = 180.0, 0.7, 75.0
#: The code as it is, which has to pass.
CONTROL = Sabotage("none", (), QUIET)
BROKEN = re.compile(r"BROKEN: (?P<promise>.+?) \(during: (?P<fault>.+?)\): (?P<evidence>.+)")


class Verdict(NamedTuple):
    """What became of one: the promise that was found broken ("": none), after how many seconds, and what was said."""

    promise: str
    seconds: float
    text: str


def missing(sabotage: Sabotage) -> list[str]:
    """Return what of a sabotage does not stand in the package any more."""
    return [
        f"{sabotage.name}: {patch.file} has no such text any more: {patch.old!r}"
        for patch in sabotage.patches
        if patch.old not in (BASE / PACKAGE / patch.file).read_text()
    ]


def run(sabotage: Sabotage, copy: Path, seed: int) -> Verdict:
    """Run the soak with one fault in the copy; mend the copy again."""
    before = {patch.file: (copy / PACKAGE / patch.file).read_text() for patch in sabotage.patches}
    for patch in sabotage.patches:
        file = copy / PACKAGE / patch.file
        file.write_text(file.read_text().replace(patch.old, patch.new))
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--seed",
        str(seed),
        "--minutes",
        str(MINUTES),
        "--drain",
        str(DRAIN),
    ]
    for fault in sabotage.faults:
        command += ["--only", fault]
    begin = time.monotonic()
    lines: list[str] = []
    behind = False
    process = subprocess.Popen(
        command, cwd=copy, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    signal.signal(signal.SIGALRM, lambda *_: process.terminate())
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if not (found := BROKEN.search(line)):
                continue
            promise, evidence = found["promise"], found["evidence"]
            # A slow machine has not done all of its work at the end: then nothing is known to be lost.
            behind = behind or evidence.startswith("at the end")
            if sabotage.delays or not (promise == SLOW or (behind and promise in (LOST, INCONSISTENT))):
                return Verdict(promise, time.monotonic() - begin, evidence)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        process.terminate()
        process.communicate()
        for path, text in before.items():
            (copy / PACKAGE / path).write_text(text)
    return Verdict("", time.monotonic() - begin, "\n".join(lines[-12:]))


def main() -> int:
    """Run all that are named, or all; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.sabotage", description=__doc__)
    parser.add_argument("words", nargs="*", help="only those that have one of these words in their names")
    parser.add_argument("--seed", type=int, default=1, help="of the soak's runs (default 1)")
    parser.add_argument("--list", action="store_true", help="print their names, and do nothing")
    given = parser.parse_args()
    chosen = [one for one in SABOTAGES if not given.words or any(word in one.name for word in given.words)]
    if gone := [text for sabotage in SABOTAGES for text in missing(sabotage)]:
        print(*gone, sep="\n")
        print("The code has changed: say in tests/soak/sabotages.py what the fault would be now.")
        return 2
    if given.list:
        print(*(sabotage.name for sabotage in chosen), sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    escaped = 0
    with tempfile.TemporaryDirectory(prefix="leasequeue-sabotage-") as directory:
        copy = Path(directory)
        for part in COPIED:
            (copy / part).parent.mkdir(parents=True, exist_ok=True)
            ignored = shutil.ignore_patterns("__pycache__")
            if (BASE / part).is_dir():
                shutil.copytree(BASE / part, copy / part, ignore=ignored)
            else:
                shutil.copy(BASE / part, copy / part)
        if not given.words and (broken := run(CONTROL, copy, given.seed)).promise:
            print(f"Without any fault it is broken already: {broken.promise}: {broken.text}")
            return 2
        print("| fault | caught by | after |\n| --- | --- | --- |", flush=True)
        for sabotage in chosen:
            verdict = run(sabotage, copy, given.seed)
            escaped += not verdict.promise
            caught = verdict.promise or "**not caught**"
            print(f"| {sabotage.name} | {caught} | {verdict.seconds:.0f} s |", flush=True)
            if not verdict.promise:
                print(verdict.text, file=sys.stderr, flush=True)
    print(f"{len(chosen) - escaped} of {len(chosen)} were caught.")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
