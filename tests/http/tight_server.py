"""uvicorn whose connections have small buffers in the kernel, which takes megabytes for each client otherwise."""

import socket
import sys

import uvicorn

if __name__ == "__main__":
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections take it over.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    listening.bind(("127.0.0.1", int(sys.argv[1])))
    uvicorn.Server(uvicorn.Config("testproject.asgi:application", backlog=2_048)).run([listening])
