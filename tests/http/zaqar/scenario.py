"""An ordinary user's day with python-zaqarclient 3.0.1, in its own environment: ``python scenario.py URL``."""

import sys

from zaqarclient.queues.v1 import client as zaqar


def main(url: str) -> None:
    options = {"os_project_id": "tenant-1", "os_auth_token": "none", "os_auth_url": "", "insecure": ""}
    conf = {"auth_opts": {"backend": "noauth", "options": options}}
    cli = zaqar.Client(url, 1, conf=conf)
    other = zaqar.Client(url, 1, conf=conf)
    assert cli.health()

    queue = cli.queue("fizbit")
    assert queue.exists()
    assert [q._name for q in cli.queues()] == ["fizbit"]
    assert queue.metadata() == {}
    queue.metadata({"handle": "@kgriffs"})
    assert cli.queue("fizbit", auto_create=False).metadata(force_reload=True) == {"handle": "@kgriffs"}

    refs = queue.post([{"ttl": 300, "body": {"n": n}} for n in range(12)])
    assert len(refs["resources"]) == 12
    queue.post({"ttl": 60, "body": "the thirteenth"})

    assert list(queue.messages(echo=False)) == []
    assert len(list(queue.messages(echo=True, limit=5))) == 5
    listed = list(queue.messages(echo=True, limit=5).stream())
    assert [m.body for m in listed] == [{"n": n} for n in range(12)] + ["the thirteenth"], listed
    streamed = list(other.queue("fizbit").messages().stream())
    assert len(streamed) == 13

    ids = [m._id for m in listed[:2]]
    assert [m.body["n"] for m in queue.messages(*ids)] == [0, 1]
    assert queue.message(listed[2]._id).body == {"n": 2}

    worker = other.queue("fizbit")
    claim = worker.claim(ttl=100, grace=60, limit=3)
    claimed = list(claim)
    assert ([m.body["n"] for m in claimed], claim.ttl) == ([0, 1, 2], 100)
    assert claim.age >= 0
    claim.update(ttl=200, grace=60)
    again = worker.claim(claim.id)
    assert again.ttl == 200, again.ttl
    stats = queue.stats["messages"]
    assert (stats["claimed"], stats["free"], stats["total"]) == (3, 10, 13), stats
    assert stats["oldest"]["age"] >= 0

    claimed[0].delete()
    claim.delete()
    stats = queue.stats["messages"]
    assert (stats["claimed"], stats["free"]) == (0, 12), stats
    assert [m.body["n"] for m in worker.claim(ttl=60, grace=60, limit=1)] == [1]

    queue.message(listed[5]._id).delete()
    queue.delete_messages(listed[6]._id, listed[7]._id)
    assert queue.stats["messages"]["total"] == 9

    queue.delete()
    assert not cli.queue("fizbit", auto_create=False).exists()
    print("all good")


if __name__ == "__main__":
    main(sys.argv[1])
