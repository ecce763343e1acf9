"""JSON that is read back: the short way and json.loads say the same."""

import json

import pytest

from django_leasequeue.engine import codec

READ = [
    "null", '{"kwargs":{"i":1,"pad":"x"}}', ' \n{"a": [1.5, true]}\t ', '"\u00e9"', "1e300",
    "123456789012345678901234567890", "NaN",
]  # fmt: skip
REFUSED = ["", " ", "{", '{"a":1} {"b":2}', "[1,]", "\ufeff{}", "nul", "01"]


@pytest.mark.parametrize("text", READ)
def test_what_is_json_is_read_as_json_loads_reads_it(text: str) -> None:
    assert repr(codec.loads(text)) == repr(json.loads(text)) == repr(codec.loads(text.encode()))


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_is_refused_with_the_same_words(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as usual:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as ours:
        codec.loads(text)
    assert str(ours.value) == str(usual.value)


def test_hooks_are_heard() -> None:
    assert codec.loads("[1.5]", parse_float=str) == ["1.5"]
