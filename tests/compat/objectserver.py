"""A server of objects for tests, on a free port: GET, and PUT with ``If-Match``, as S3 answers them."""

import hashlib
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ObjectServer(ThreadingHTTPServer):
    """Objects by path, ``/bucket/key``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which clients of S3 find this server."""
        return {
            "AWS_ENDPOINT": f"http://127.0.0.1:{self.server_port}", "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectServer

    def do_GET(self) -> None:
        with self.server.lock:
            found = self.server.objects.get(self.path)
        self._answer(404 if found is None else 200, found or b"", _tag(found or b""))

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            found = self.server.objects.get(self.path, b"")
            if self.headers["If-Match"] != _tag(found):
                self._answer(412, b"", _tag(found))
                return
            self.server.objects[self.path] = content
        self._answer(200, b"", _tag(content))

    def _answer(self, status: int, content: bytes, tag: str) -> None:
        self.send_response(status)
        self.send_header("ETag", tag)
        self.send_header("Last-Modified", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
