"""Runs a management command as the benchmark's child: ``python -m testproject.bench.child runworker ...``.

It ends when the benchmark does, also when that was killed: no worker is left behind on somebody's machine.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

#: The benchmark's process number. A child that asked who its parent is might ask too late.
PARENT_VARIABLE = "LEASEQUEUE_BENCH_PARENT"


def watch() -> None:
    """Stop this process when its parent is not the benchmark any more."""
    parent = int(os.environ[PARENT_VARIABLE])
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
    os._exit(1)


def main() -> None:
    """Watch the parent and run the command that the arguments name."""
    threading.Thread(target=watch, daemon=True).start()
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
