"""The form of a queue's options, with the checks that every door has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from django import forms
from django.forms.boundfield import BoundField

from ..engine.queues import presets
from ..enums import Backoff, DedupUntil, Discard, Durability, ExhaustAt, LateAck, PriorityOrder, Requeue
from ..exceptions import InvalidOption

_CHOICES: dict[str, Any] = {
    "requeue": Requeue.choices,
    "priority_order": PriorityOrder.choices,
    "late_ack": LateAck.choices,
    "exhaust_at": ExhaustAt.choices,
    "backoff": Backoff.choices,
    "dedup_until": DedupUntil.choices,
    "discard": Discard.choices,
    "durability": Durability.choices,
}
_BOOLEANS = ("leases_durable", "log_enqueued")
_GROUPS: dict[str, tuple[str, ...]] = {
    "Leases": ("lease_ms", "late_ack", "leases_durable", "claim_jitter_ms", "concurrency", "requeue"),
    "Tries": (
        "max_deliveries",
        "exhaust_at",
        "dead_letter",
        "dead_ttl_ms",
        "backoff",
        "backoff_base_ms",
        "backoff_max_ms",
    ),
    "Order": ("priority_order", "priority_min", "priority_max"),
    "What is kept": (
        "result_ttl_ms",
        "dedup_until",
        "idempotency_window_ms",
        "ttl_ms",
        "cap_records",
        "cap_bytes",
        "discard",
    ),
    "Storage": ("durability", "log_enqueued", "serializer", "metadata"),
}
_HELP = {
    "dead_letter": "self: dead jobs stay in this queue; the name of a topic: they move there; empty: tried for ever",
    "max_deliveries": "0: no limit",
    "result_ttl_ms": "0: nothing is kept of a completed job",
    "ttl_ms": "0: messages do not expire",
    "dead_ttl_ms": "0: dead letters stay until somebody acts",
    "cap_records": "0: no cap",
    "cap_bytes": "0: no cap",
}


class FieldGroup(NamedTuple):
    """Fields under one heading."""

    heading: str
    fields: list[BoundField]


def digest(config: dict[str, Any]) -> str:
    """Return a mark of options, to see whether somebody changed them while a form was open."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


class QueueForm(forms.Form):
    """All options of a queue but its type.

    Args:
        config: the options as they are.
        name: of the queue.
        data: what was sent.
    """

    seen = forms.CharField(widget=forms.HiddenInput)

    def __init__(self, config: dict[str, Any], name: str, data: Any = None) -> None:
        super().__init__(data, initial={**config, "seen": digest(config)})
        self.config = config
        self.name = name
        for option in [option for options in _GROUPS.values() for option in options]:
            self.fields[option] = _field(option)

    def groups(self) -> Iterator[FieldGroup]:
        """The fields by what they are about."""
        for heading, options in _GROUPS.items():
            yield FieldGroup(heading, [self[option] for option in options])

    def clean(self) -> dict[str, Any]:
        """Check the options together, as ``engine.configure`` will."""
        cleaned = {**self.cleaned_data}
        if cleaned.pop("seen", None) != digest(self.config):
            raise forms.ValidationError("Somebody changed the options meanwhile. Load the page again and look at them.")
        if self.errors:
            return cleaned
        cleaned["dead_letter"] = cleaned["dead_letter"] or None
        cleaned["type"] = self.config["type"]
        for option, value in cleaned.items():
            try:
                presets.check_options({option: value})
            except InvalidOption as error:
                self.add_error(option if option in self.fields else None, str(error))
        if not self.errors:
            try:
                presets.complete(None, self.name, **cleaned)
            except InvalidOption as error:
                raise forms.ValidationError(str(error)) from error
        return cleaned

    def changed(self) -> dict[str, list[Any]]:
        """Return what the form changes: option, from, to."""
        wanted = presets.check_options(
            {name: self.cleaned_data[name] for name in self.config if name in self.cleaned_data}
        )
        return {name: [self.config[name], value] for name, value in wanted.items() if self.config[name] != value}


def _field(option: str) -> forms.Field:
    label = option.replace("_", " ").removesuffix(" ms") + (" (ms)" if option.endswith("_ms") else "")
    common: dict[str, Any] = {"label": label.capitalize(), "help_text": _HELP.get(option, "")}
    if option in _CHOICES:
        return forms.ChoiceField(choices=_CHOICES[option], **common)
    if option in _BOOLEANS:
        return forms.BooleanField(required=False, **common)
    if option == "metadata":
        widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})
        return forms.JSONField(required=False, empty_value={}, initial=dict, widget=widget, **common)
    if option == "dead_letter":
        return forms.CharField(required=False, max_length=255, **common)
    if option == "serializer":
        return forms.CharField(max_length=64, **common)
    return forms.IntegerField(**common)
