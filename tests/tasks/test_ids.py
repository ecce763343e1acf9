import uuid
from itertools import islice

import pytest

from django_leasequeue import engine
from django_leasequeue.engine import NewJob
from django_leasequeue.engine.jobs.results import status
from django_leasequeue.exceptions import InvalidOption
from django_leasequeue.models import StoredJob
from django_leasequeue.tasks.results import new_end, new_ends


def test_an_id_is_a_version_8_uuid_that_begins_with_its_number() -> None:
    text = engine.make_id(0x123456789ABCDE, new_end())
    parsed = uuid.UUID(text)
    assert (str(parsed), parsed.version, parsed.variant) == (text, 8, uuid.RFC_4122)
    assert text.startswith("01234567-89ab-8cde-")


def test_ids_differ_and_their_random_bits_are_all_used() -> None:
    ids = [uuid.UUID(engine.make_id(1, end)).int for end in islice(new_ends(), 20_000)]
    assert len(set(ids)) == len(ids)
    ones = zeros = 0
    for value in ids:
        ones |= value
        zeros |= ~value
    random_bits = (1 << 62) - 1
    assert (ones & random_bits, zeros & random_bits) == (random_bits, random_bits)


@pytest.mark.django_db
@pytest.mark.parametrize("count", [1, 2, 150])
def test_the_engine_makes_the_id_of_the_number(count: int) -> None:
    ends = [new_end() for _ in range(count)]
    answers = engine.run(engine.enqueue("work", [NewJob(id_end=end) for end in ends]))
    ids = [engine.make_id(answer.seq, end) for answer, end in zip(answers, ends, strict=True)]
    rows = StoredJob.objects.order_by("seq").values_list("key", "generated")
    assert list(rows) == [(key, True) for key in ids]
    found = {line.key: line.seq for line in engine.run(status("work", keys=ids))}
    assert [found[key] for key in ids] == [answer.seq for answer in answers]


@pytest.mark.django_db
def test_an_id_with_another_end_leads_nowhere() -> None:
    (answer,) = engine.run(engine.enqueue("work", [NewJob(id_end=new_end())]))
    assert engine.run(status("work", keys=[engine.make_id(answer.seq, new_end())])) == []


@pytest.mark.parametrize("job", [NewJob(id_end="x"), NewJob(id_end=new_end(), key="k")])
def test_an_end_that_is_none_is_refused(job: NewJob) -> None:
    with pytest.raises(InvalidOption, match="id_end"):
        engine.run(engine.enqueue("work", [job]))
