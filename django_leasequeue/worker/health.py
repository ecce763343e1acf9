"""Health of a worker for probes: a page and a file."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

#: Seconds between two writings of the file.
EVERY = 5.0
#: (whether it is well, figures)
Report = tuple[bool, dict[str, Any]]


class HealthPage:
    """``GET`` anything: 200 while the worker is well, else 503, with its figures as JSON.

    Serve it by ``start``, or call ``answer`` when ``fileno`` can be read. ``pages`` are answered at other addresses:
    path -> (status, content type, body) for the header ``Accept``. No ``threads`` in a process that forks.
    """

    def __init__(
        self,
        host: str,
        port: int,
        report: Callable[[], Report],
        pages: Mapping[str, Callable[[str], tuple[int, str, bytes]]],
        *,
        threads: bool = True,
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 2

            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                if page is not None:
                    status, content_type, body = page(self.headers.get("Accept", ""))
                else:
                    well, figures = report()
                    status, content_type = 200 if well else 503, "application/json"
                    body = json.dumps({"healthy": well, **figures}).encode()
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: probes come every few seconds."""

        class Server(TCPServer):  # an HTTPServer asks the name service for the host's full name
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Say nothing: the client went away."""

        class Threaded(ThreadingMixIn, Server):
            # A page that waits for the database keeps no probe waiting.
            daemon_threads = True
            block_on_close = False

        self._server = (Threaded if threads else Server)((host, port), Handler)
        self._server.timeout = 0
        self.port = int(self._server.server_address[1])
        self.fileno, self.answer = self._server.fileno, self._server.handle_request
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._server.serve_forever, name="leasequeue-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()


class HealthFile:
    """A file whose age and content say how the worker is: written while it is well, removed when it stops."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._tried_at = -math.inf

    def write(self, report: Report) -> None:
        """Write the file anew, if the worker is well and the last time is some seconds ago."""
        if time.monotonic() - self._tried_at < EVERY:
            return
        self._tried_at = time.monotonic()
        well, figures = report
        if well:
            fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            fresh.write_text(json.dumps(figures) + "\n")
            fresh.replace(self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
