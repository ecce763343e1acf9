"""Paths and links of the answers: always paths, never absolute."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from django.urls import reverse

from .ids import encode_id


def queue_path(name: str) -> str:
    """Return the path of a queue."""
    return reverse("leasequeue-zaqar:queue", args=[name])


def message_path(name: str, queue_id: int, seq: int, claim: int | None = None) -> str:
    """Return the path of a message, with its claim if it is held by the caller."""
    path = f"{queue_path(name)}/messages/{encode_id('message', queue_id, seq)}"
    return path if claim is None else f"{path}?claim_id={encode_id('claim', queue_id, claim)}"


def messages_path(name: str, queue_id: int, seqs: list[int]) -> str:
    """Return the path of a set of messages by their ids."""
    return f"{queue_path(name)}/messages?ids={','.join(encode_id('message', queue_id, seq) for seq in seqs)}"


def claim_path(name: str, queue_id: int, claim: int) -> str:
    """Return the path of a claim."""
    return f"{queue_path(name)}/claims/{encode_id('claim', queue_id, claim)}"


def next_link(path: str, query: dict[str, str], marker: str) -> list[dict[str, str]]:
    """Return the one ``next`` link of a list: the query as it was, the marker moved on."""
    kept = {**query, "marker": marker}
    return [{"rel": "next", "href": f"{quote(path)}?{urlencode(kept)}"}]
