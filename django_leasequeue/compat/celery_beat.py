"""The schedules of Celery's beat as recurring tasks: django-celery-beat's tables, and ``CELERY_BEAT_SCHEDULE``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connections, transaction
from django.utils import timezone

from .. import conf
from ..engine import DjangoExecutor, audit, clock, codec
from ..exceptions import InvalidOption
from ..models import RecurringTask
from ..models.recurring import service_name
from ..reaper.declarations import PAGE, check, home_of, task_of, template_of
from ..tasks.arguments import check_arguments

TABLE = "django_celery_beat_periodictask"
OUTCOMES = ("new", "there already", "not imported")
#: The fields of a cron line, in its order.
_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
#: Settings of a message broker, which nothing here replaces.
_BROKER = ("exchange", "routing_key", "headers")
#: A clocked time becomes a cron line, which has no year.
_AHEAD = timedelta(days=365)
#: An entry as ``LEASEQUEUE["RECURRING"]`` has it, and the names of what is left out.
_Beat = tuple[dict[str, Any], list[str]]


class Line(NamedTuple):
    """An entry of beat, what it is here, and the outcome: it begins with one of ``OUTCOMES``."""

    name: str
    task: str
    schedule: str
    timezone: str
    outcome: str


def move(using: str, renamed: Mapping[str, str], *, dry_run: bool = False) -> Iterator[Line]:
    """Make a recurring task of each entry that has none yet; yield all, by name."""
    for name, read in sorted(_entries(using).items()):
        task, shown = "", ("", "")
        try:
            given, without = read()
            task = given["task"] = renamed.get(given["task"], given["task"])
            if task.startswith("celery."):
                raise InvalidOption("a task of Celery's own is not needed here.")
            found = check(name, given)
            shown = found.schedule, found.timezone
            left_out = f", without {', '.join(without)}" if without else ""
            yield Line(name, task, *shown, _save(found._asdict(), dry_run=dry_run) + left_out)
        except Exception as error:  # noqa: BLE001  (one that cannot be moved stops no other)
            yield Line(name, task, *shown, f"not imported: {error}")


def _entries(using: str) -> dict[str, Callable[[], _Beat]]:
    """Return what reads each entry, by name. The tables win: beat copies the setting into them."""
    declared = getattr(settings, "CELERY_BEAT_SCHEDULE", None)
    has_tables = TABLE in connections[using].introspection.table_names()
    if declared is None and not has_tables:
        raise InvalidOption(
            f"The database {using!r} has no tables of django-celery-beat, and the settings no CELERY_BEAT_SCHEDULE."
        )
    found: dict[str, Callable[[], _Beat]] = {
        str(name): partial(_of_setting, entry) for name, entry in (declared or {}).items()
    }
    after, executor = 0, DjangoExecutor(using)
    while has_tables and (rows := executor.fetch("celery_beat", {"after": after, "size": PAGE})):
        after = rows[-1][0]
        for row in (json.loads(text) for _, text in rows):
            found[row["name"]] = partial(_of_row, row)
    return found


def _of_row(row: dict[str, Any]) -> _Beat:
    now, start, last = clock.now(), _moment(row.get("start_time")), _moment(row["last_run_at"])
    if start is not None and start > now:
        raise InvalidOption(f"start_time is later ({start}): import it then.")
    given = {
        "task": row["task"],
        "args": json.loads(row["args"] or "[]"),
        "kwargs": json.loads(row["kwargs"] or "{}"),
        "queue_name": row["queue"] or "",
        "priority": row["priority"],
        "until": _moment(row["expires"]),
        "expires": row.get("expire_seconds"),
        "times": 1 if row["one_off"] else None,
        # Beat runs an entry with one_off once, whenever that was.
        "enabled": row["enabled"] and not (row["one_off"] and row["total_run_count"]),
    }
    if (crontab := row["crontab"]) is not None:
        given |= _cron([crontab[field] for field in _FIELDS], crontab["timezone"])
    elif (interval := row["interval"]) is not None:
        length = given["schedule"] = timedelta(**{interval["period"]: interval["every"]})
        given["phase"] = int(last.timestamp()) % max(int(length.total_seconds()), 1) if last else 0  # keeps its beat
    elif row["clocked"] is not None and (at := _moment(row["clocked"]["clocked_time"])) is not None:
        at = at.astimezone(UTC).replace(microsecond=0)
        if not now < at < now + _AHEAD:
            raise InvalidOption(f"its time ({at}) is past, or more than {_AHEAD.days} days ahead.")
        line = f"{at.second} {at.minute} {at.hour} {at.day} {at.month} *"
        given |= {"schedule": line, "timezone": "UTC", "times": 1, "until": at}
    else:
        raise InvalidOption(f"a solar schedule ({row['solar'] and row['solar']['event']}): there is none here.")
    return given, [name for name in _BROKER if row.get(name) not in (None, "", "{}")]


def _of_setting(entry: Mapping[str, Any]) -> _Beat:
    schedule, options = entry["schedule"], dict(entry.get("options") or {})
    expires = options.pop("expires", None)
    given = {
        "task": entry["task"],
        "args": list(entry.get("args") or ()),
        "kwargs": dict(entry.get("kwargs") or {}),
        "queue_name": options.pop("queue", None) or "",
        "priority": options.pop("priority", None),
        "expires": timedelta(seconds=expires) if isinstance(expires, float) else expires,
    }
    if hasattr(schedule, "_orig_minute"):
        zone = getattr(schedule, "tz", None) or getattr(settings, "CELERY_TIMEZONE", None) or "UTC"
        given |= _cron([getattr(schedule, f"_orig_{field}") for field in _FIELDS], zone)
    else:
        length = getattr(schedule, "run_every", schedule)
        given["schedule"] = timedelta(seconds=length) if isinstance(length, int | float) else length
        if not isinstance(given["schedule"], timedelta):
            raise InvalidOption(f"a schedule must be a crontab, seconds or a timedelta; it is {schedule!r}.")
    return given, sorted(options)


def _cron(values: Sequence[Any], zone: Any) -> dict[str, str]:
    texts = [str(each) if isinstance(each, str | int) else ",".join(map(str, sorted(each))) for each in values]
    # Cron has names of three letters.
    fields = [re.sub(r"[a-z]{4,}", lambda word: word[0][:3], "".join(text.lower().split())) for text in texts]
    if not (fields[2].startswith("*") or fields[4].startswith("*")):
        raise InvalidOption(
            "Celery runs on days that match both day_of_month and day_of_week, cron on days that match either one."
        )
    return {"schedule": " ".join(fields), "timezone": str(zone)}


def _moment(text: str | None) -> datetime | None:
    at = None if text is None else datetime.fromisoformat(text)
    return at if at is None or timezone.is_aware(at) else timezone.make_aware(at)


def _save(values: dict[str, Any], *, dry_run: bool) -> str:
    """Make the recurring task, unless there is one of its name; return what was done."""
    path, options = values["task"], [values[key] for key in ("backend", "queue_name", "priority", "expires")]
    job = template_of(path, values["args"], values["kwargs"], *options)
    home = home_of(path, *options[:2], otherwise=conf.settings.DATABASE, job=job)
    values |= {key: codec.loads(values[key]) for key in ("args", "kwargs")}
    check_arguments(task_of(path, *options), values["args"], values["kwargs"])
    tasks = RecurringTask.objects.using(home)
    row = tasks.filter(service=service_name(), name=values["name"]).first()
    if row is not None:
        differs = [key for key, value in values.items() if key != "phase" and getattr(row, key) != value]
        return f"there already, and stays; it differs in {', '.join(differs)}" if differs else "there already"
    if not dry_run:
        with transaction.atomic(using=home):
            made = tasks.create(**values, template=job)
            detail = {"name": made.name, "task": path, "source": "celery-beat"}
            audit.write("add_recurring", audit.shell(), queue=made.queue_name, detail=detail, using=home)
    return "new" if values["enabled"] else "new, disabled"
