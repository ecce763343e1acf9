"""``client_dist`` is the client without Django: what its wheel is made of works alone."""

import shutil
import tomllib
from pathlib import Path

from tests.support.absent import run_without

ROOT = Path(__file__).parents[2] / "client_dist"

USE = """
import httpx

def answer(request):
    job = {"$seq": 7, "$ts": 0, "lease_id": "a-1", "deadline": 1_000, "deliveries": 1, "data": {"id": 1}}
    answers = {
        "/v0/topics/images": {"topic": "images", "seqs": [7], "count": 1, "created": True, "deduped": False},
        "/v0/topics/images/claim": {"claimed": [job]},
        "/v0/topics/images/ack": {"acked": 1, "skipped": []},
    }
    return httpx.Response(200, json=answers[request.url.path])

from leasequeue_client import Client, Record

with Client("http://queue/v0", transport=httpx.MockTransport(answer)) as client:
    client.produce("images", [Record({"id": 1})])
    (job,) = client.claim("images", "here")
    print(job.seq, client.ack("images", "here", [job]).count)
"""


def test_it_has_all_that_it_imports(tmp_path: Path) -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    shutil.copytree(ROOT / "leasequeue_client", tmp_path / "leasequeue_client")
    for source, target in wheel["wheel"]["force-include"].items():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / target)
    absent = {"django", "django_leasequeue", "rest_framework", "psycopg", "pgtrigger", "asgiref"}
    done = run_without(absent, USE, directory=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7 1\n", "")
