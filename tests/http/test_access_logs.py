"""Access logs of real servers: every line is written, and none holds a token."""

import io
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.glogging import Logger
from uvicorn.logging import AccessFormatter

from django_leasequeue.conf.loglines import redact_access_logs

TARGET = "/v0/topics/work/work?node=a&token=lqk_abc_s3cret&max=2"
SHOWN = "/v0/topics/work/work?node=a&token=[redacted]&max=2"


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    redact_access_logs()
    names = ("gunicorn.access", "gunicorn.error", "uvicorn.access")
    before = {name: (logging.getLogger(name).propagate, logging.getLogger(name).level) for name in names}
    yield
    for name, (propagate, level) in before.items():
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.propagate = propagate
        logger.setLevel(level)


def gunicorn_line(log: Path, line_format: str, target: str = TARGET) -> str:
    config = Config()
    config.set("accesslog", str(log))
    config.set("access_log_format", line_format)
    path, _, query = target.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "GET", "RAW_URI": target, "PATH_INFO": path, "QUERY_STRING": query,
        "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "10.0.0.9", "HTTP_REFERER": f"https://shop.example{target}",
    }  # fmt: skip
    request = SimpleNamespace(headers=[("USER-AGENT", "curl"), ("X-Forwarded-Uri", target)])
    response = SimpleNamespace(status="200 OK", sent=12, headers=[("Content-Type", "text/event-stream")])
    Logger(config).access(response, request, environ, timedelta(milliseconds=5))
    return log.read_text().rstrip("\n")


def test_gunicorn_as_it_comes(tmp_path: Path) -> None:
    line = gunicorn_line(tmp_path / "access.log", Config().access_log_format)
    assert line.startswith("10.0.0.9 - - [")
    assert line.endswith(f'"GET {SHOWN} HTTP/1.1" 200 12 "https://shop.example{SHOWN}" "-"')


@pytest.mark.parametrize(("atom", "shown"), [
    ("%({x-not-sent}i)s", "-"), ("%({User-Agent}i)s", "curl"), ("%({x-forwarded-uri}i)s", SHOWN),
    ("%({content-type}o)s", "text/event-stream"), ("%({RAW_URI}e)s", SHOWN), ("%({NOT_SET}e)s", "-"),
    ("%(q)s", SHOWN.partition("?")[2]), ("%(unheard-of)s", "-"), ("%(B)d %(D)d", "12 5000"),
])  # fmt: skip
def test_gunicorn_with_a_format_of_the_hosts_own(tmp_path: Path, atom: str, shown: str) -> None:
    assert gunicorn_line(tmp_path / "access.log", f"{atom} %(s)s") == f"{shown} 200"


def test_gunicorn_whose_query_is_nothing_but_the_token(tmp_path: Path) -> None:
    target = "/v0/topics/work/watch?token=lqk_abc_s3cret"
    assert gunicorn_line(tmp_path / "access.log", "%(q)s", target) == "token=[redacted]"


def test_uvicorn() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(AccessFormatter('%(client_addr)s - "%(request_line)s" %(status_code)s', use_colors=False))
    logger = logging.getLogger("uvicorn.access")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # As uvicorn's protocols call it.
    logger.info('%s - "%s %s HTTP/%s" %d', "10.0.0.9:4711", "GET", TARGET, "1.1", 200)
    assert written.getvalue() == f'10.0.0.9:4711 - "GET {SHOWN} HTTP/1.1" 200 OK\n'
