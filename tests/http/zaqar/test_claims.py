"""Claims."""

from django_leasequeue.engine.clock import Clock
from django_leasequeue.models import EventKind, LeaseEvent

from .conftest import Zaqar


class TestCreate:
    def test_oldest_first_ten_unless_another_limit_is_said(self, zaqar: Zaqar, queue: str) -> None:
        zaqar.post(queue, 1, 2, 3)
        assert [message["body"] for message in zaqar.claim(queue, 2, ttl=300, grace=300).json()] == [1, 2]
        zaqar.post(queue, *range(4, 15))
        rest = zaqar("POST", f"/v1/queues/{queue}/claims", {"ttl": 60, "grace": 60}).json()
        assert [message["body"] for message in rest] == list(range(3, 13))
        assert len(zaqar.claim(queue).json()) == 2
        assert zaqar.claim(queue).status_code == 204

    def test_the_grace_keeps_claimed_messages_alive(self, zaqar: Zaqar, queue: str, clock: Clock) -> None:
        zaqar.post(queue, 1, ttl=60)
        clock.advance(seconds=30)
        [message] = zaqar.claim(queue, ttl=100, grace=200).json()
        assert message["ttl"] == 330
        clock.advance(seconds=101)
        assert len(zaqar("GET", f"/v1/queues/{queue}/messages?echo=true").json()["messages"]) == 1
        clock.advance(seconds=200)
        assert zaqar("GET", f"/v1/queues/{queue}/messages?echo=true").status_code == 204


class TestQuery:
    def test_shows_what_is_still_held(self, zaqar: Zaqar, queue: str, clock: Clock) -> None:
        zaqar.post(queue, 1, 2)
        answer = zaqar.claim(queue, ttl=100)
        zaqar("DELETE", answer.json()[0]["href"])
        clock.advance(seconds=19)
        shown = zaqar("GET", answer["Location"])
        assert (shown.status_code, shown["Content-Location"]) == (200, answer["Location"])
        document = shown.json()
        assert (document["age"], document["ttl"], document["href"]) == (19, 100, answer["Location"])
        assert [message["body"] for message in document["messages"]] == [2]
        clock.advance(seconds=82)
        assert zaqar("GET", answer["Location"]).status_code == 404

    def test_of_another_queue_project_or_nonsense_is_404(self, zaqar: Zaqar, queue: str) -> None:
        zaqar.post(queue, 1)
        location = zaqar.claim(queue)["Location"]
        zaqar("PUT", "/v1/queues/other")
        assert zaqar("GET", location.replace(queue, "other")).status_code == 404
        stranger = Zaqar("stranger")
        stranger("PUT", f"/v1/queues/{queue}")
        assert stranger("GET", location).status_code == 404
        assert zaqar("GET", f"/v1/queues/{queue}/claims/nonsense").status_code == 404


def test_a_renewal_resets_the_age_and_sets_the_ttl(zaqar: Zaqar, queue: str, clock: Clock) -> None:
    zaqar.post(queue, 1, ttl=60)
    location = zaqar.claim(queue, ttl=60, grace=60)["Location"]
    clock.advance(seconds=50)
    assert zaqar("PATCH", location, {"ttl": 300}).status_code == 204
    clock.advance(seconds=100)
    document = zaqar("GET", location).json()
    assert (document["age"], document["ttl"]) == (100, 300)
    assert zaqar.claim(queue).status_code == 204
    clock.advance(seconds=201)
    assert zaqar("PATCH", location, {"ttl": 300}).status_code == 404
    assert zaqar.claim(queue).status_code == 201


def test_a_release_frees_the_rest_at_once(zaqar: Zaqar, queue: str) -> None:
    zaqar.post(queue, 1, 2, 3)
    answer = zaqar.claim(queue)
    zaqar("DELETE", answer.json()[1]["href"])
    assert LeaseEvent.objects.latest("id").kind == EventKind.ACKED
    assert zaqar("DELETE", answer["Location"]).status_code == 204
    assert zaqar("GET", answer["Location"]).status_code == 404
    assert zaqar("DELETE", answer["Location"]).status_code == 204
    assert [message["body"] for message in zaqar.claim(queue).json()] == [1, 3]


def test_what_each_claim_id_answers_where_a_message_is_deleted(zaqar: Zaqar, queue: str, clock: Clock) -> None:
    """The table of the reference page, row by row: a message, the claim that is named, the answer."""
    zaqar("PUT", "/v1/queues/other")
    zaqar.post("other", 1)
    elsewhere = zaqar.claim("other", ttl=10_000).json()[0]["href"].split("?claim_id=")[1]
    zaqar.post(queue, *range(5))
    [ended] = zaqar.claim(queue, 1, ttl=60).json()
    clock.advance(seconds=61)
    [again] = zaqar.claim(queue, 1, ttl=10_000).json()
    [mine] = zaqar.claim(queue, 1, ttl=10_000).json()
    released = zaqar.claim(queue, 1, ttl=10_000)
    zaqar("DELETE", released["Location"])
    messages = {
        "held": again["href"].split("?")[0],
        "free": released.json()[0]["href"].split("?")[0],
        "gone": zaqar.post(queue, 1)[0],
    }
    zaqar("DELETE", messages["gone"])
    live = mine["href"].split("?claim_id=")[1]
    none = {
        "malformed": "nonsense", "empty": "", "unknown": "0" * 24, "of another queue": elsewhere,
        "a message's": messages["held"].rsplit("/", 1)[1], "ended": ended["href"].split("?claim_id=")[1],
        "released": released["Location"].rsplit("/", 1)[1],
    }  # fmt: skip
    for what, claim in none.items():
        assert zaqar("DELETE", f"{messages['held']}?claim_id={claim}").status_code == 400, what
        assert zaqar("DELETE", f"{messages['free']}?claim_id={claim}").status_code == 400, what
        assert zaqar("DELETE", f"{messages['gone']}?claim_id={claim}").status_code == 204, what
    assert zaqar("DELETE", messages["held"]).status_code == 403
    assert zaqar("DELETE", f"{messages['held']}?claim_id={live}").status_code == 403
    assert zaqar("DELETE", f"{messages['free']}?claim_id={live}").status_code == 400
    assert zaqar("DELETE", f"{messages['gone']}?claim_id={live}").status_code == 204
    assert zaqar("DELETE", messages["gone"]).status_code == 204
    assert zaqar("DELETE", again["href"]).status_code == 204
    assert zaqar("DELETE", messages["free"]).status_code == 204
