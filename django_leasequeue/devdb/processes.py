"""Looking at processes by number, without a dependency."""

import os
import subprocess
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Say whether the process exists and is not a zombie.

    A killed server whose parent does not collect it (in a container whose first process is no init, for one) stays a
    zombie: ``kill(pid, 0)`` finds it, and PostgreSQL takes it for a running server.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z"


def _state(pid: int) -> str:
    try:
        # "pid (name) state ...": the name may hold anything, so look behind its last bracket.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        pass
    try:
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        # No shell; where ps is differs between systems, and PATH is the caller's own.
        answer = subprocess.run(command, capture_output=True, text=True, check=False)  # nosec B603
    except OSError:
        return ""
    return answer.stdout.strip()[:1]
