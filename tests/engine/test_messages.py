"""Pages of messages with those that somebody holds, which no index names."""

import pytest

from django_leasequeue import engine
from django_leasequeue.engine.topics import messages
from django_leasequeue.models import Claim

from .helpers import NODE, claim, put, seqs


def listed(queue: int, **options: object) -> list[tuple[int, bool]]:
    page = engine.run(messages.list_messages(queue, **options))
    return [(message.seq, message.claim is not None) for message in page]


@pytest.mark.parametrize("look", [1, 2, 1_000])
def test_held_messages_stand_where_they_were(queue, monkeypatch: pytest.MonkeyPatch, look: int) -> None:
    monkeypatch.setattr(messages, "_LOOK", look)
    made = put(12)
    first, second = claim(4), claim(4)
    engine.run(engine.ack(seqs(first[1:3]), NODE))
    engine.run(engine.nack([second[0].seq], NODE))
    left = [seq for seq in made if seq not in seqs(first[1:3])]
    taken = {first[0].seq, first[3].seq, *seqs(second[1:])}
    assert listed(queue, size=50, leased=True) == [(seq, seq in taken) for seq in left]
    assert listed(queue, size=50) == [(seq, False) for seq in left if seq not in taken]
    pages, after = [], 0
    while page := engine.run(messages.list_messages(queue, size=3, after=after, leased=True)):
        pages += [message.seq for message in page]
        after = page[-1].position
    assert pages == left


def test_a_claim_that_was_given_back_is_gone_whatever_was_done_of_it(queue) -> None:
    put(4)
    whole, part = claim(2), claim(2)
    engine.run(engine.ack([part[0].seq], NODE))
    assert engine.run(messages.release_claim(queue, whole[0].token)) == 2
    assert engine.run(messages.release_claim(queue, part[1].token)) == 1
    assert not Claim.objects.exists()
