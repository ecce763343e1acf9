"""``python -m tests.http.wsgi_server PORT``: the test project's WSGI application, a thread a request."""

import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

from testproject.wsgi import application


class ThreadedServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 200


if __name__ == "__main__":
    make_server("127.0.0.1", int(sys.argv[1]), application, ThreadedServer).serve_forever()
