"""Queues in the admin: the list, the page of one with its charts, what can be done to it."""

from __future__ import annotations

import hashlib
import json
import time
from bisect import bisect
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import engine
from ..conf.queue_options import OPTIONS, QueueOption
from ..engine import clock
from ..engine.queues import presets
from ..engine.queues.stats import counts_by_id
from ..enums import JobState
from ..exceptions import InvalidOption, LeaseQueueError
from ..metrics import charts
from ..models import Queue
from ..reaper import concerns
from ..templatetags.leasequeue_admin import count
from . import audit, pages, rates, reading

#: Queues of one page, and entries that are counted of those with many jobs, all together.
PAGE, COUNTED = 25, 200_000


def errors_first(found: Iterable[concerns.Concern]) -> list[concerns.Concern]:
    """Return warnings in the order in which a page shows them: it folds all but three."""
    return sorted(found, key=lambda concern: concern.level != "error")


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
                    now = _("Now {time}.").format(time=clock.span(config[name] / 1_000))
                    self.fields[name].help_text = f"{_(option.help).rstrip('.')}. {now}"

    def groups(self) -> Iterator[dict[str, Any]]:
        """Yield the heading of each group of fields, and the fields."""
        grouped = [name for name, option in OPTIONS.items() if option.group]
        for heading, names in groupby(grouped, lambda name: OPTIONS[name].group):
            yield {"heading": _(heading), "fields": [self[name] for name in names]}

    def clean(self) -> dict[str, Any]:
        cleaned = {**self.cleaned_data}
        if cleaned.pop("seen", None) != digest(self.config):
            raise forms.ValidationError(_("The options were changed meanwhile. Load the page again and look at them."))
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
        wanted = presets.check_options(
            {name: self.cleaned_data[name] for name in self.config if name in self.cleaned_data}
        )
        return {name: [self.config[name], value] for name, value in wanted.items() if self.config[name] != value}


def label_of(name: str) -> str:
    """Return an option's name in words: ``Lease (ms)``."""
    words = name.replace("_", " ").removesuffix(" ms").capitalize().replace("ttl", "TTL").replace("Ttl", "TTL")
    return _(words) + (" (ms)" if name.endswith("_ms") else "")


def in_words(name: str, value: Any) -> str:
    """Return an option's value as a page shows it: milliseconds with what they are in larger units."""
    choices = OPTIONS[name].choices
    if choices is not None:
        return _(choices(value).label)
    return f"{value} ({clock.span(value / 1_000)})" if name.endswith("_ms") and value >= 1_000 else str(value)


def _field(name: str, option: QueueOption) -> forms.Field:
    common: dict[str, Any] = {"label": label_of(name), "help_text": _(option.help)}
    if option.choices is not None:
        return forms.ChoiceField(choices=[(value, _(label)) for value, label in option.choices.choices], **common)
    match option.kind:
        case "boolean":
            return forms.BooleanField(required=False, **common)
        case "object":
            widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})
            return pages.JsonField(required=False, empty_value={}, initial=dict, widget=widget, **common)
        case "topic":
            return forms.CharField(required=False, max_length=255, **common)
        case "name":
            return forms.CharField(max_length=64, **common)
        case _:
            return forms.IntegerField(**common)


#: Places of the chart of depths: samples are spread over them.
_PLACES = 60
#: Samples that are read, the newest: of a longer time the chart may begin later.
_SAMPLES = 5_000


def _depths(queue: Queue, now: datetime, seconds: int) -> SafeString | str:
    """Draw the samples of the last time; places without a sample repeat the one before: only changes are sampled."""
    newest = queue.samples.filter(sampled_at__gte=now - timedelta(seconds=seconds)).order_by("-sampled_at")
    left = list(newest[:_SAMPLES])[::-1]
    if not left:
        return ""
    times = [now - timedelta(seconds=seconds * (1 - (n + 1) / _PLACES)) for n in range(_PLACES)]
    sampled = [clock.aware(row.sampled_at) for row in left]
    rows = [left[place - 1] if (place := bisect(sampled, at)) else None for at in times]
    kinds = {_("ready"): "ready", _("delayed"): "delayed", _("in flight"): "leased", _("dead"): "dead"}
    series = [charts.Series(label, [getattr(row, name, None) for row in rows]) for label, name in kinds.items()]
    return charts.chart("depths", _("Depth as sampled, jobs"), times, series, unit=_("jobs"))


PURGEABLE = ("ready", "delayed", "dead")
#: Jobs of one batch of a purge, and seconds after which it stops and says how far it came.
_BATCH = 5_000
_SECONDS = 8.0

_ACTIONS = {"pause": "pause_queue", "resume": "pause_queue", "purge": "purge_queue"}


@admin.register(Queue)
class QueueAdmin(pages.PageAdmin[Queue]):
    """Queues are made by their first job, the settings or the API; here they are looked at and steered."""

    def get_urls(self) -> list[URLPattern]:
        options = self.view(self.options, "view_queue", "change_queue")
        listed = self.view(self.changelist, "view_queue", takes=("q", "after", "after_project"))
        one = self.view(self.change, "view_queue", takes=("range",))
        return [
            path("", listed, name="leasequeue_queue_changelist"),
            path("<int:pk>/change/", one, name="leasequeue_queue_change"),
            path("<int:pk>/options/", options, name="leasequeue_queue_options"),
            path("<int:pk>/act/", self.act_view(self.act), name="leasequeue_queue_act"),
        ]

    def changelist(self, request: HttpRequest) -> HttpResponse:
        asked = ("q", "after", "after_project")
        prefix, last_name, project = (request.GET.get(name, "")[:512].replace("\x00", "") for name in asked)
        after = (project, last_name) if last_name else None
        names = reading.read_queues(PAGE + 1, prefix.strip(), after)
        shown = names[:PAGE]
        counts = reading.read(counts_by_id([each.id for each in shown], budget=COUNTED)) if shown else {}
        found = reading.read_log(rates.read_rates(None, rates.HOUR))
        lines = rates.lines_of([counts[each.id] for each in shown if each.id in counts], found, rates.HOUR)
        context: dict[str, Any] = {
            "lines": lines,
            "concerns": errors_first(concern for line in lines for concern in line["concerns"]),
            "reach": found.reach,
            "q": prefix,
            "first": f"?{urlencode({'q': prefix})}" if after else None,
            "next": None,
        }
        if len(names) > PAGE:
            last = shown[-1]
            context["next"] = f"?{urlencode({'q': prefix, 'after_project': last.project, 'after': last.name})}"
        return self.page(request, "queues.html", context, title=_("Queues"))

    def change(self, request: HttpRequest, pk: int) -> HttpResponse:
        queue = _find(pk)
        counts = reading.read(counts_by_id([queue.pk])).get(queue.pk)
        info = reading.read(engine.get(queue.name, project=queue.project))
        if counts is None or info is None:
            raise Http404
        now = clock.now()
        health = reading.read(concerns.read_health([queue.pk])).get(queue.pk)
        of_server = reading.server()[1]
        chosen = rates.chosen(request)
        found = reading.read_log(rates.read_rates(queue.pk, chosen))
        urls = pages.Lists()
        if pages.allowed(request, "view_job") and (jobs := self.url_or_none("leasequeue_job_changelist", queue=pk)):
            urls |= {"jobs": jobs, **{state: f"{jobs}&state={state}" for state in JobState.labels}}
        context: dict[str, Any] = {
            "queue": queue,
            "counts": counts,
            "concerns": errors_first([*concerns.of_queue(counts, health, now), *of_server]),
            "health": health,
            **rates.part(found, chosen),
            "depths": _depths(queue, now, chosen.seconds),
            "urls": urls,
            "options": sorted(info.config.items()),
            "changed": [
                (label_of(name), in_words(name, info.config[name]), _(option.help))
                for name, option in OPTIONS.items()
                if option.group and info.config[name] != option.default
            ],
        }
        crumbs = [(_("Queues"), "leasequeue_queue_changelist")]
        return self.page(request, "queue.html", context, title=_("Queue {queue}").format(queue=queue), crumbs=crumbs)

    def options(self, request: HttpRequest, pk: int) -> HttpResponse:
        queue = _find(pk)
        info = reading.read(engine.get(queue.name, project=queue.project))
        if info is None:
            raise Http404
        form = QueueForm(info.config, queue.name, data=request.POST or None)
        if request.method == "POST" and form.is_valid():
            changed = form.changed()
            with transaction.atomic(using=reading.alias()):
                if changed:
                    options = {name: form.cleaned_data[name] for name in form.config if name in form.cleaned_data}
                    reading.run(engine.configure(queue.name, project=queue.project, **options))
                    _record(request, "edit_queue", queue, detail={"changed": changed})
            words = _("Changed: {options}.") if changed else _("Nothing was changed.")
            messages.success(request, words.format(options=", ".join(changed)))
            return self.redirect("leasequeue_queue_change", pk)
        crumbs = [(_("Queues"), "leasequeue_queue_changelist"), (str(queue), "leasequeue_queue_change", pk)]
        context, title = {"queue": queue, "form": form}, _("Options of {queue}").format(queue=queue)
        return self.page(request, "queue_options.html", context, title=title, crumbs=crumbs)

    def act(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Pause, resume or purge: a POST with ``action``; a purge also with ``states`` and the name typed."""
        action = pages.action_of(request, _ACTIONS, "view_queue")
        queue = _find(pk)
        try:
            if action == "purge":
                self._purge(request, queue)
            else:
                self._pause(request, queue, action)
        except LeaseQueueError as error:
            messages.error(request, str(error))
        return self.redirect("leasequeue_queue_change", pk)

    def _pause(self, request: HttpRequest, queue: Queue, action: str) -> None:
        paused = action == "pause"
        with transaction.atomic(using=reading.alias()):
            reading.run(engine.pause(queue.name, paused=paused, project=queue.project))
            _record(request, action, queue)
        words = _("{queue} is resumed: its jobs are claimed again.")
        if paused:
            words = _("{queue} is paused: nothing is claimed from it.")
        messages.success(request, words.format(queue=queue))

    def _purge(self, request: HttpRequest, queue: Queue) -> None:
        states = [state for state in PURGEABLE if state in request.POST.getlist("states")]
        if request.POST.get("typed", "").strip() != queue.name or not states:
            messages.error(request, _("Nothing was removed: choose what is to go, and type the name of the queue."))
            return
        before = reading.read(counts_by_id([queue.pk])).get(queue.pk)
        detail = {"states": states, "there": None if before is None else before.ready + before.delayed + before.dead}
        gone, since, left = 0, time.monotonic(), True
        while left and time.monotonic() - since < _SECONDS:
            purge = engine.purge(queue.name, states=states, project=queue.project, size=_BATCH)
            with transaction.atomic(using=reading.alias()):
                if left := bool(removed := reading.run(purge)):
                    # A line for each batch: what is removed and its line stand together, whatever happens next.
                    _record(request, "purge", queue, counts={"removed": removed}, detail=detail)
            gone += removed
        say = messages.warning if left else messages.success
        text = ngettext("{number} job of {queue} was removed.", "{number} jobs of {queue} were removed.", gone)
        rest = " " + _("There is more: the time for one request was over. Purge again to go on.") if left else ""
        say(request, text.format(number=count(gone), queue=queue) + rest)


def _find(pk: int) -> Queue:
    queue = reading.instance(Queue, pk)
    if queue is None:
        raise Http404(f"There is no queue {pk}.")
    return queue


def _record(request: HttpRequest, action: str, queue: Queue, **facts: dict[str, Any]) -> None:
    audit.record(request, action, obj=queue, project=queue.project, queue=queue.name, **facts)
