"""A relay between a client and a server: a proxy that keeps what clients sent, and may lead elsewhere meanwhile."""

import contextlib
import socket
import threading

from tests.support.proxy import Proxy


class Relay(Proxy):
    """Listens on a port of its own and passes everything on to another one."""

    def __init__(self, target: int) -> None:
        super().__init__("127.0.0.1", target)
        #: What clients sent, all of it.
        self.sent = b""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v0"

    def lead_to(self, target: int) -> None:
        self._target = ("127.0.0.1", target)

    def count(self, words: str) -> int:
        return self.sent.count(words.encode())

    def _pass(self, source: socket.socket, target: socket.socket, gate: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if gate is self._forth:
                    with self._lock:
                        self.sent += data
                target.sendall(data)
        self._close(source, target)
