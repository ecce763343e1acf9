"""Run the smoke of hosts, each in an environment and on a server of its own: ``python -m tests.hosts [NAME ...]``.

``--write-docs`` puts versions and date of those that pass into ``docs/reference/works-with.md``. The exit code is 75 if
what a host needs cannot be had here, and all other hosts passed.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

from tests.hosts import HOSTS, SMOKE, page, surroundings
from tests.support.environment import BASE_DIR, child_environment

#: The exit code by which ``.ci/run`` knows what was left out.
SKIPPED = 75
#: What stays as it is installed already: the host's own packages must go with it.
KEPT = ("Django", "psycopg", "psycopg-pool")


def interpreter(name: str) -> Path:
    """Return the Python of a host: with its packages over those of this one, of which none is installed again."""
    packages = HOSTS[name].packages
    if not packages:
        return Path(sys.executable)
    venv = BASE_DIR / f".venv-host-{name}"
    python, done = venv / "bin" / "python", venv / "installed"
    wanted = "\n".join([sys.executable, sys.version, *packages])
    if done.exists() and done.read_text() == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", venv], check=True)
    (own,) = venv.glob("lib/python*/site-packages")
    # As a site of its own: its .pth files count, of which one leads to this project.
    (own / "parent.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "-qq"]
    installed = subprocess.run([*pip, *(f"{each}=={version(each)}" for each in KEPT), *packages], check=False)
    if installed.returncode:
        raise surroundings.Absent(f"{' '.join(packages)} cannot be installed.")
    done.write_text(wanted)
    return python


def run(name: str) -> tuple[int, dict[str, str]]:
    """Run one host's smoke; return its exit code, and what it ran with."""
    began, host, versions = time.monotonic(), HOSTS[name], {}
    try:
        python = interpreter(name)
        with getattr(surroundings, host.surroundings)() as found:
            env = {
                **child_environment(found["DATABASE_URL"]),
                **found,
                "DJANGO_SETTINGS_MODULE": f"tests.hosts.settings_{name}",
            }
            command = [python, "-c", SMOKE, *host.packages]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    except surroundings.Absent as error:
        print(f"{name}: skipped. {error}", flush=True)
        return SKIPPED, {}
    lines = done.stdout.splitlines()
    if done.returncode == 0:
        versions = json.loads(lines.pop())
        if "pooler" in host.surroundings or "pgbouncer" in host.surroundings:
            versions["pgbouncer"] = surroundings.pgbouncer_version()
    said = [f"{name}:", *lines, *(done.stderr.splitlines() if done.returncode else ())]
    took = f"{'FAILED' if done.returncode else 'passed'} in {time.monotonic() - began:.0f} s"
    # At once, so that two hosts do not mix their lines.
    print("\n".join([*said, f"{name}: {took}"]), flush=True)
    return done.returncode, versions


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*HOSTS, []], metavar="NAME", help=f"of {', '.join(HOSTS)}")
    parser.add_argument("--write-docs", action="store_true", help="write what passed into the documentation")
    asked = parser.parse_args(arguments)
    names = asked.names or list(HOSTS)
    codes = {}
    # Two at once: most of their time is waiting.
    with ThreadPoolExecutor(2) as both:
        for name, (code, versions) in zip(names, both.map(run, names), strict=True):
            codes[name] = code
            if versions and asked.write_docs:
                page.write(name, versions)
    failed = [name for name, code in codes.items() if code not in (0, SKIPPED)]
    skipped = [name for name, code in codes.items() if code == SKIPPED]
    print(f"{len(codes)} hosts; failed: {', '.join(failed) or 'none'}; not to be had: {', '.join(skipped) or 'none'}")
    return 1 if failed else SKIPPED if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
