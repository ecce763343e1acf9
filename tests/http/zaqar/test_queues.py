"""Home, health, queues, metadata, stats."""

from typing import Any

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.clock import Clock

from .conftest import Zaqar


class TestBase:
    def test_home_document_lists_every_resource_and_is_cacheable(self, zaqar: Zaqar) -> None:
        answer = zaqar("GET", "/v1/", Accept="application/json-home")
        assert answer.status_code == 200
        assert answer["Content-Type"].startswith("application/json-home")
        assert "max-age" in answer["Cache-Control"]
        resources = answer.json()["resources"]
        assert resources["rel/queue"]["href-template"] == "/v1/queues/{queue_name}"
        assert resources["rel/claim"]["hints"]["allow"] == ["POST"]
        assert resources["rel/messages"]["href-template"].endswith("{?marker,limit,echo,include_claimed}")
        limits = [resources[f"rel/{name}"]["href-vars"]["limit"] for name in ("queues", "messages", "claim")]
        assert limits == ["param/queue_limit", "param/messages_limit", "param/claim_limit"]

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_health(self, zaqar: Zaqar, method: str) -> None:
        assert zaqar(method, "/v1/health").status_code == 204

    def test_health_is_503_whatever_goes_wrong(self, zaqar: Zaqar, monkeypatch: Any) -> None:
        async def fail(*_: object, **__: object) -> None:
            raise ConnectionError

        monkeypatch.setattr("django_leasequeue.http.views.RequestRunner.run", fail)
        answer = zaqar("GET", "/v1/health")
        assert answer.status_code == 503
        assert answer["Retry-After"]
        assert set(answer.json()) == {"title", "description"}

    @pytest.mark.parametrize(("method", "headers", "status", "words"), [
        ("GET", {"X_Project_Id": ""}, 400, "X-Project-Id"), ("GET", {"X_Project_Id": "p" * 257}, 400, "256"),
        ("GET", {"Client_ID": "not-a-uuid"}, 400, "UUID"), ("GET", {"Accept": "text/html"}, 406, ""),
        ("POST", {}, 405, ""),
    ])  # fmt: skip
    def test_what_is_refused_has_this_doors_form(
        self, zaqar: Zaqar, queue: str, method: str, headers: dict[str, str], status: int, words: str
    ) -> None:
        answer = zaqar(method, f"/v1/queues/{queue}/stats", **headers)
        assert (answer.status_code, set(answer.json())) == (status, {"title", "description"})
        assert words in answer.json()["description"]


class TestQueues:
    def test_create_exists_delete(self, zaqar: Zaqar) -> None:
        made = zaqar("PUT", "/v1/queues/boomerang")
        assert (made.status_code, made["Location"]) == (201, "/v1/queues/boomerang")
        assert engine.run(engine.get("boomerang", project="demo")).config["lease_ms"] == 300_000
        assert zaqar("PUT", "/v1/queues/boomerang").status_code == 204
        for method in ("GET", "HEAD"):
            assert zaqar(method, "/v1/queues/boomerang").status_code == 204
        assert zaqar("DELETE", "/v1/queues/boomerang").status_code == 204
        for name in ("a" * 64, "_under", "-dash", "MiXed9"):
            assert zaqar("PUT", f"/v1/queues/{name}").status_code == 201
        assert zaqar("GET", "/v1/queues/boomerang").status_code == 404
        assert zaqar("DELETE", "/v1/queues/boomerang").status_code == 204

    @pytest.mark.parametrize("route", ["", "/metadata", "/stats", "/messages", "/messages/x", "/claims/x"])
    @pytest.mark.parametrize("name", ["a" * 65, "no.dots", "%C3%A9", "a%20b"])
    def test_a_bad_name_is_400_on_every_route(self, zaqar: Zaqar, name: str, route: str) -> None:
        answer = zaqar("GET", f"/v1/queues/{name}{route}")
        assert answer.status_code == 400
        assert set(answer.json()) == {"title", "description"}

    def test_projects_never_see_each_other(self, zaqar: Zaqar) -> None:
        zaqar("PUT", "/v1/queues/mine")
        other = Zaqar("other")
        assert other("GET", "/v1/queues/mine").status_code == 404
        assert other("GET", "/v1/queues").status_code == 204
        assert Zaqar(None)("GET", "/v1/queues/mine").status_code == 404

    def test_list_pages_end_in_204(self, zaqar: Zaqar) -> None:
        names = [f"q{number:02}" for number in range(5)]
        for name in names:
            zaqar("PUT", f"/v1/queues/{name}")
            zaqar("PUT", f"/v1/queues/{name}/metadata", {"n": name})
        seen: list[str] = []
        url = "/v1/queues?limit=2&detailed=True"
        while (answer := zaqar("GET", url)).status_code == 200:
            document = answer.json()
            assert (answer["Content-Location"], [link["rel"] for link in document["links"]]) == (url, ["next"])
            seen += [entry["name"] for entry in document["queues"]]
            assert all(entry["metadata"] == {"n": entry["name"]} for entry in document["queues"])
            url = document["links"][0]["href"]
            assert url.startswith("/v1/queues?")
            assert "limit=2" in url
            assert "detailed=true" in url
        assert (answer.status_code, seen) == (204, names)


class TestMetadata:
    def test_put_replaces_get_returns_and_64_kib_is_the_limit(self, zaqar: Zaqar, queue: str) -> None:
        url = f"/v1/queues/{queue}/metadata"
        assert zaqar("GET", url).json() == {}
        assert zaqar("PUT", url, {"key": {"key2": "value", "key3": [1, 2.5, None]}}).status_code == 204
        assert zaqar("PUT", url, {"other": True}).status_code == 204
        answer = zaqar("GET", url)
        assert answer.status_code == 200
        assert answer.json() == {"other": True}
        assert zaqar("PUT", url, raw='{"a": "' + "x" * (65_536 - 9) + '"}').status_code == 204
        assert zaqar("PUT", url, raw='{"a": "' + "x" * (65_536 - 8) + '"}').status_code == 400

    @pytest.mark.parametrize("name", ["_", "_ttl", "__x"])
    def test_names_that_begin_with_an_underscore_are_reserved(self, zaqar: Zaqar, queue: str, name: str) -> None:
        url = f"/v1/queues/{queue}/metadata"
        assert zaqar("PUT", url, {"kept": {"_inside": 1}, "a_b": 2, "": 3}).status_code == 204
        answer = zaqar("PUT", url, {"new": 1, name: 2})
        assert answer.status_code == 400
        assert repr(name) in answer.json()["description"]
        assert zaqar("GET", url).json() == {"kept": {"_inside": 1}, "a_b": 2, "": 3}


def test_counts_stay_right_while_claims_expire(zaqar: Zaqar, queue: str, clock: Clock) -> None:
    zaqar.post(queue, 1, 2, 3)
    clock.advance(seconds=51)
    paths = zaqar.post(queue, 4)
    assert zaqar.claim(queue, 3, ttl=60).status_code == 201
    clock.advance(seconds=12)
    stats = zaqar("GET", f"/v1/queues/{queue}/stats").json()["messages"]
    assert (stats["free"], stats["claimed"], stats["total"], stats["oldest"]["age"]) == (1, 3, 4, 63)
    assert (stats["newest"]["age"], stats["newest"]["href"]) == (12, paths[0])
    assert stats["oldest"]["created"].endswith("Z")
    clock.advance(seconds=60)
    stats = zaqar("GET", f"/v1/queues/{queue}/stats").json()["messages"]
    assert (stats["free"], stats["claimed"], stats["total"]) == (4, 0, 4)
