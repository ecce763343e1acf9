"""The form of a queue's options, with the checks that every door has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from django import forms
from django.forms.boundfield import BoundField

from ..conf.queue_options import OPTIONS, QueueOption
from ..engine.clock import span
from ..engine.queues import presets
from ..exceptions import InvalidOption
from .base import JsonField


class FieldGroup(NamedTuple):
    """Fields under one heading."""

    heading: str
    fields: list[BoundField]


def digest(config: dict[str, Any]) -> str:
    """Return a mark of options, to see whether they changed while a form was open."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


class QueueForm(forms.Form):
    """All options of a queue but its type."""

    seen = forms.CharField(widget=forms.HiddenInput)

    def __init__(self, config: dict[str, Any], name: str, data: Any = None) -> None:
        super().__init__(data, initial={**config, "seen": digest(config)})
        self.config = config
        self.name = name
        for name, option in OPTIONS.items():
            if option.group:
                self.fields[name] = _field(name, option)
                if name.endswith("_ms") and config[name] >= 1_000:
                    self.fields[name].help_text = f"{option.help.rstrip('.')}. Now {span(config[name] / 1_000)}."

    def groups(self) -> Iterator[FieldGroup]:
        """The fields by what they are about."""
        grouped = [name for name, option in OPTIONS.items() if option.group]
        for heading, names in groupby(grouped, lambda name: OPTIONS[name].group):
            yield FieldGroup(heading, [self[name] for name in names])

    def clean(self) -> dict[str, Any]:
        """Check the options together, as ``engine.configure`` will."""
        cleaned = {**self.cleaned_data}
        if cleaned.pop("seen", None) != digest(self.config):
            raise forms.ValidationError("The options were changed meanwhile. Load the page again and look at them.")
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


def label_of(name: str) -> str:
    """Return an option's name in words: ``Lease (ms)``."""
    words = name.replace("_", " ").removesuffix(" ms") + (" (ms)" if name.endswith("_ms") else "")
    return words.capitalize().replace("ttl", "TTL").replace("Ttl", "TTL")


def in_words(name: str, value: Any) -> str:
    """Return an option's value as a page shows it: milliseconds with what they are in larger units."""
    choices = OPTIONS[name].choices
    if choices is not None:
        return str(choices(value).label)
    return f"{value} ({span(value / 1_000)})" if name.endswith("_ms") and value >= 1_000 else str(value)


def _field(name: str, option: QueueOption) -> forms.Field:
    common: dict[str, Any] = {"label": label_of(name), "help_text": option.help}
    if option.choices is not None:
        return forms.ChoiceField(choices=option.choices.choices, **common)
    match option.kind:
        case "boolean":
            return forms.BooleanField(required=False, **common)
        case "object":
            widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})
            return JsonField(required=False, empty_value={}, initial=dict, widget=widget, **common)
        case "topic":
            return forms.CharField(required=False, max_length=255, **common)
        case "name":
            return forms.CharField(max_length=64, **common)
        case _:
            return forms.IntegerField(**common)
