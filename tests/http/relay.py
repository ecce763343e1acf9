"""A relay between a client and a server: it counts what passes, and breaks connections off when a test says so."""

import contextlib
import socket
import threading
from typing import Self

from tests.support.proxy import reset


class Relay:
    """Listens on a port of its own and passes everything on to another one.

    Args:
        target: the server's port.
    """

    def __init__(self, target: int) -> None:
        #: Where new connections go.
        self.target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        #: What clients sent, all of it.
        self.sent = b""
        #: While true, new connections are closed at once.
        self.refusing = False

    @property
    def address(self) -> str:
        """Where the API is, through the relay."""
        return f"http://127.0.0.1:{self.port}/v0"

    def count(self, words: str) -> int:
        """How often clients sent these words."""
        return self.sent.count(words.encode())

    def cut(self) -> None:
        """Break all connections off."""
        with self._lock:
            cut, self._open = self._open, set()
        for one in cut:
            reset(one)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.target), 5)
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, noted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if noted:
                    with self._lock:
                        self.sent += data
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._lock:
            self._open -= {source, target}
