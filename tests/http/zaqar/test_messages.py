"""Messages."""

from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.clock import Clock
from django_leasequeue.http.zaqar.base import decode_id, encode_id

from .conftest import Zaqar


def bodies(answer: object) -> list[object]:
    return [message["body"] for message in answer.json()["messages"]]  # type: ignore[attr-defined]  # a test response


def test_an_id_reveals_nothing_fits_only_its_place_and_outlives_a_secret_key(settings: Any) -> None:
    one, two = encode_id("message", 7, 1), encode_id("message", 7, 2)
    assert len(one) == 24
    assert one[:8] != two[:8]
    assert decode_id("claim", 7, one) is None
    assert decode_id("message", 7, one[:16] + "é" * 8) is None
    assert decode_id("message", 8, one) is None
    assert decode_id("message", 7, one[:-1] + ("0" if one[-1] != "0" else "1")) is None
    old = encode_id("message", 7, 42)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "new"
    assert decode_id("message", 7, old) == 42


class TestPost:
    def test_many_of_any_form(self, zaqar: Zaqar, queue: str) -> None:
        paths = zaqar.post(queue, "a", [1], None, 2.5)
        answer = zaqar("GET", f"/v1/queues/{queue}/messages?ids=" + ",".join(p.rsplit("/", 1)[1] for p in paths))
        assert [message["body"] for message in answer.json()] == ["a", [1], None, 2.5]

    @pytest.mark.parametrize(
        ("method", "path"), [("POST", "messages"), ("POST", "claims"), ("PATCH", "claims/x"), ("PUT", "metadata")]
    )
    def test_a_form_is_no_document(self, zaqar: Zaqar, queue: str, method: str, path: str) -> None:
        for kind in ("application/x-www-form-urlencoded", "application/X-WWW-form-urlencoded; charset=utf-8"):
            answer = zaqar.http.generic(
                method, f"/v1/queues/{queue}/{path}", '[{"ttl": 300, "body": 1}]', kind, headers=zaqar.headers
            )
            assert answer.status_code == 400
            assert "form" in answer.json()["description"]
        assert zaqar("GET", f"/v1/queues/{queue}/messages?echo=true").status_code == 204
        made = zaqar.http.generic("PUT", "/v1/queues/new", "", kind, headers=zaqar.headers)
        assert made.status_code == 201  # it has no body to be read

    def test_256_kib_is_the_limit(self, zaqar: Zaqar, queue: str) -> None:
        frame = '[{"ttl": 300, "body": "%s"}]'
        room = 262_144 - len(frame) + 2
        assert zaqar("POST", f"/v1/queues/{queue}/messages", raw=frame % ("x" * room)).status_code == 201
        assert zaqar("POST", f"/v1/queues/{queue}/messages", raw=frame % ("x" * (room + 1))).status_code == 400

    def test_client_id_is_required_and_may_come_without_dashes(self, zaqar: Zaqar, queue: str) -> None:
        del zaqar.headers["Client-ID"]
        assert zaqar("POST", f"/v1/queues/{queue}/messages", [{"ttl": 60, "body": 1}]).status_code == 400
        zaqar.headers["Client-ID"] = zaqar.client.replace("-", "")
        zaqar.post(queue, 1)
        zaqar.headers["Client-ID"] = zaqar.client
        assert zaqar("GET", f"/v1/queues/{queue}/messages").status_code == 204


class TestList:
    def test_oldest_first_own_messages_only_with_echo(self, zaqar: Zaqar, queue: str) -> None:
        other = Zaqar()
        zaqar.post(queue, 1, 2)
        other.post(queue, 3)
        url = f"/v1/queues/{queue}/messages"
        assert bodies(zaqar("GET", url)) == [3]
        assert bodies(other("GET", url)) == [1, 2]
        assert bodies(zaqar("GET", url + "?echo=True")) == [1, 2, 3]

    def test_pages_keep_the_query_and_end_in_204(self, zaqar: Zaqar, queue: str) -> None:
        for start in range(0, 30, 10):
            zaqar.post(queue, *range(start, start + 10))
        seen: list[object] = []
        url = f"/v1/queues/{queue}/messages?echo=true&limit=7"
        while (answer := zaqar("GET", url)).status_code == 200:
            seen += bodies(answer)
            [link] = answer.json()["links"]
            assert link["rel"] == "next"
            url = link["href"]
            assert "echo=true" in url
            assert "limit=7" in url
        assert (answer.status_code, answer.content) == (204, b"")
        assert seen == list(range(30))

    def test_claimed_ones_only_on_request(self, zaqar: Zaqar, queue: str) -> None:
        zaqar.post(queue, *range(6))
        zaqar.claim(queue, 2)
        url = f"/v1/queues/{queue}/messages?echo=true"
        assert bodies(zaqar("GET", url)) == [2, 3, 4, 5]
        assert bodies(zaqar("GET", url + "&include_claimed=true")) == list(range(6))
        assert bodies(zaqar("GET", url + "&include_claimed=true&limit=3")) == [0, 1, 2]

    def test_age_and_ttl(self, zaqar: Zaqar, queue: str, clock: Clock) -> None:
        zaqar.post(queue, 1, ttl=800)
        clock.advance(seconds=790)
        [message] = zaqar("GET", f"/v1/queues/{queue}/messages?echo=true").json()["messages"]
        assert (message["ttl"], message["age"]) == (800, 790)
        assert message["href"].startswith(f"/v1/queues/{queue}/messages/")
        clock.advance(seconds=11)
        assert zaqar("GET", f"/v1/queues/{queue}/messages?echo=true").status_code == 204
        assert zaqar("GET", message["href"]).status_code == 404

    def test_nothing_comes_after_a_marker_that_is_none(self, zaqar: Zaqar, queue: str) -> None:
        zaqar.post(queue, 1, 2)
        url = f"/v1/queues/{queue}/messages?echo=true&limit=1"
        marker = zaqar("GET", url).json()["links"][0]["href"].split("marker=")[1]
        assert bodies(zaqar("GET", f"{url}&marker={marker}")) == [2]
        zaqar("PUT", "/v1/queues/other")
        zaqar.post("other", 3)
        others = zaqar("GET", "/v1/queues/other/messages?echo=true").json()["links"][0]["href"].split("marker=")[1]
        for none in ("nonsense", "0" * 24, marker[:-1], "%00", "\u00e9", others):
            answer = zaqar("GET", f"{url}&marker={none}")
            assert (answer.status_code, answer.content) == (204, b""), none

    def test_jobs_of_the_other_doors_are_messages(self, zaqar: Zaqar, queue: str) -> None:
        engine.run(engine.enqueue(queue, [NewJob(data={"from": "python"})], project="demo"))
        [message] = zaqar("GET", f"/v1/queues/{queue}/messages").json()["messages"]
        assert (message["body"], message["ttl"]) == ({"from": "python"}, 1_209_600)


def test_a_message_is_read_and_deleted(zaqar: Zaqar, queue: str) -> None:
    assert zaqar("GET", f"/v1/queues/{queue}/messages/nonsense").status_code == 404
    for name in (queue, "none"):
        assert zaqar("DELETE", f"/v1/queues/{name}/messages/nonsense").status_code == 204
    [path] = zaqar.post(queue, {"event": "ActivateAccount"})
    assert zaqar("GET", path).json()["body"] == {"event": "ActivateAccount"}
    zaqar("PUT", "/v1/queues/other")
    assert zaqar("GET", path.replace(queue, "other")).status_code == 404
    assert zaqar("DELETE", path).status_code == 204
    assert zaqar("GET", path).status_code == 404
    assert zaqar("DELETE", path).status_code == 204


class TestSets:
    def test_ids_come_comma_separated_or_repeated_and_bad_ones_are_left_out(self, zaqar: Zaqar, queue: str) -> None:
        ids = [path.rsplit("/", 1)[1] for path in zaqar.post(queue, 1, 2, 3)]
        url = f"/v1/queues/{queue}/messages?"
        assert [m["body"] for m in zaqar("GET", f"{url}ids={ids[0]},{ids[2]},nonsense").json()] == [1, 3]
        assert [m["body"] for m in zaqar("GET", f"{url}ids={ids[0]}&ids={ids[1]}").json()] == [1, 2]
        assert zaqar("GET", f"{url}ids=nonsense").status_code == 204
        assert zaqar("GET", f"{url}ids=" + ",".join(["x"] * 21)).status_code == 400
        assert zaqar("GET", f"{url}ids=").status_code == 400

    def test_delete_leaves_what_somebody_holds(self, zaqar: Zaqar, queue: str) -> None:
        ids = [path.rsplit("/", 1)[1] for path in zaqar.post(queue, 1, 2, 3, 4)]
        zaqar.claim(queue, 1)
        url = f"/v1/queues/{queue}/messages"
        assert zaqar("DELETE", f"{url}?ids={','.join(ids[:3])},nonsense").status_code == 204
        assert bodies(zaqar("GET", f"{url}?echo=true")) == [4]
        assert bodies(zaqar("GET", f"{url}?echo=true&include_claimed=true")) == [1, 4]
        assert zaqar("DELETE", url).status_code == 400
