"""A proxy between a client and a server whose connections a test lets through, hangs, refuses or cuts.

It serves in threads of the test's own process::

    with Proxy("/var/run/postgresql", 5432) as proxy:
        connection = psycopg.connect(host=proxy.host, port=proxy.port, ...)
        proxy.hang()    # nothing passes any more, nothing is closed; new connections are accepted and get no answer
        proxy.heal()    # what was held passes now, in order
        proxy.refuse()  # connections are reset, new ones get "connection refused"
        proxy.heal()    # the same port listens again
        proxy.cut()     # connections are reset, new ones pass
"""

import contextlib
import socket
import struct
import threading
from pathlib import Path
from typing import Self


def reset(connection: socket.socket) -> None:
    """Close a connection by a reset, as a lost network gives."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
    connection.close()


class Proxy:
    """Listens on a port of its own on 127.0.0.1 and passes everything on to a server, or the path of its socket."""

    host = "127.0.0.1"

    def __init__(self, host: str, port: int = 5432) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        #: What clients sent passes while the first is set, what the server sent while the second is.
        self._forth = threading.Event()
        self._back = threading.Event()
        self._listening = self._listen(0)
        self.port: int = self._listening.getsockname()[1]
        #: How many connections were accepted so far.
        self.accepted = 0

    def hang(self, *, answers_only: bool = False) -> None:
        """Hold everything from now on (or only what the server answers) and close nothing."""
        self._back.clear()
        if not answers_only:
            self._forth.clear()

    def refuse(self) -> None:
        self._stop_listening()
        self.cut()

    def cut(self) -> None:
        with self._lock:
            cut, self._open = self._open, set()
        for one in cut:
            reset(one)

    def heal(self) -> None:
        with self._lock:
            silent = self._listening.fileno() == -1
        if silent:
            self._listening = self._listen(self.port)
            self._serve()
        self._forth.set()
        self._back.set()

    def __enter__(self) -> Self:
        self._forth.set()
        self._back.set()
        self._serve()
        return self

    def __exit__(self, *error: object) -> None:
        self.refuse()
        self._forth.set()
        self._back.set()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        return socket.create_server(("127.0.0.1", port), backlog=200)

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listening,), name="proxy", daemon=True).start()

    def _stop_listening(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._listening.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with self._lock:
                if listening.fileno() == -1:
                    client.close()
                    return
                self._open.add(client)
                self.accepted += 1
            threading.Thread(target=self._join, args=(client,), name="proxy", daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        """Connect a client with the server (not before the proxy passes) and pass what it sends."""
        self._forth.wait()
        try:
            server = self._connect()
        except OSError:
            self._close(client)
            return
        with self._lock:
            if client not in self._open:  # cut meanwhile
                server.close()
                return
            self._open.add(server)
        for one in (client, server):
            with contextlib.suppress(OSError):  # not for sockets of the file system
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._pass, args=(server, client, self._back), name="proxy", daemon=True).start()
        self._pass(client, server, self._forth)

    def _connect(self) -> socket.socket:
        host, port = self._target
        if not host.startswith("/"):
            made = socket.create_connection((host, port), 5)
            made.settimeout(None)
            return made
        made = socket.socket(socket.AF_UNIX)
        path = Path(host)
        try:
            made.connect(str(path / f".s.PGSQL.{port}" if path.is_dir() else path))
        except OSError:
            made.close()
            raise
        return made

    def _pass(self, source: socket.socket, target: socket.socket, gate: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                gate.wait()
                target.sendall(data)
        gate.wait()  # an end is held back as data is
        self._close(source, target)

    def _close(self, *ended: socket.socket) -> None:
        for one in ended:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._lock:
            self._open -= set(ended)
