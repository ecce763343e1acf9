"""The texts that people see, found in the code and the templates, and the catalogues of their translations.

``python -m tests.messages`` (``make messages``) brings every ``.po`` up to date and compiles it. It needs no gettext.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import polib
from django.utils.translation.template import templatize

PACKAGE = Path(__file__).resolve().parents[1] / "django_leasequeue"
LOCALE = PACKAGE / "locale"
#: Functions that mark a text, and how many of their first arguments are texts: singular and plural.
MARKS = {"_": 1, "gettext": 1, "gettext_lazy": 1, "gettext_noop": 1, "ngettext": 2}
#: A text and its plural; empty where it has none.
Message = tuple[str, str]
_CALL = re.compile(r"(?<!\w)(n?gettext|_)\(((?:\s*u?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\s*,?)+)")


def in_python(source: str) -> Iterator[Message]:
    """Yield the marked texts of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS:
            texts = [arg.value for arg in node.args[: MARKS[node.func.id]] if isinstance(arg, ast.Constant)]
            if texts and all(isinstance(text, str) for text in texts):
                yield texts[0], texts[1] if len(texts) > 1 else ""


def in_template(source: str) -> Iterator[Message]:
    """Yield the marked texts of a template, as Django's own tool finds them."""
    for name, arguments in _CALL.findall(templatize(source)):
        texts = ast.literal_eval(f"({arguments.rstrip().rstrip(',')},)")
        yield texts[0], texts[1] if name == "ngettext" else ""


def of_the_models() -> Iterator[str]:
    """Yield the words of the data model that pages translate: states, kinds, options, names of models and fields."""
    from django.contrib import admin
    from django.utils import translation

    from django_leasequeue import enums
    from django_leasequeue.admin import job_list, queues, workflows
    from django_leasequeue.conf.queue_options import OPTIONS
    from django_leasequeue.engine.dead.action import CONFLICTS
    from django_leasequeue.engine.rows import Outcome
    from django_leasequeue.models import ApiScope, OperationState
    from django_leasequeue.models.operators import OperationKind

    shown = (enums.JobState, enums.JobStatus, enums.ResultState, enums.EventKind, enums.WorkflowState)
    for choices in (*shown, ApiScope, OperationKind, OperationState):
        yield from map(str, choices.labels)
    yield from (label.replace("_", " ") for label in enums.EventKind.labels)
    yield from (outcome.replace("_", " ") for outcome in Outcome)
    yield from (*workflows.TONES, *job_list.SUSPENDED, *CONFLICTS.values())
    # What workers and keys say of themselves, values of a job, and counts of the audit.
    yield from ("running", "draining", "paused", "gone", "active", "expired", "revoked")
    yield from ("data", "meta", "result", "body", "done", "selected", "removed", "expected", "capped")
    for name, option in OPTIONS.items():
        if option.group:
            yield from (queues.label_of(name).removesuffix(" (ms)"), option.group, option.help)
            yield from map(str, option.choices.labels if option.choices else ())
    with translation.override(None):
        for model_admin in admin.site._registry.values():
            options: Any = model_admin.opts
            if options.app_label == "leasequeue":
                yield from (str(options.verbose_name), str(options.verbose_name_plural))
                names = {*model_admin.list_display, *(model_admin.fields or ()), *model_admin.readonly_fields}
                names |= set(getattr(getattr(model_admin.form, "_meta", None), "fields", None) or ())
                yield from (str(field.verbose_name) for field in options.local_fields if field.name in names)


def found() -> dict[Message, list[str]]:
    """Return all texts with the files that they are in."""
    places: dict[Message, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for message in in_python(path.read_text()):
            places.setdefault(message, []).append(str(path.relative_to(PACKAGE)))
    for path in sorted(PACKAGE.glob("templates/**/*.html")):
        for message in in_template(path.read_text()):
            places.setdefault(message, []).append(str(path.relative_to(PACKAGE)))
    singles = {text for text, _plural in places}
    for text in of_the_models():
        if text and text not in singles:
            places.setdefault((text, ""), ["models"])
    return places


def update(catalogue: polib.POFile) -> None:
    """Bring a catalogue up to date: new texts are empty in it, and those that are gone are gone."""
    known = {(entry.msgid, entry.msgid_plural): entry for entry in catalogue}
    del catalogue[:]
    for (text, plural), paths in found().items():
        new = polib.POEntry(msgid=text, msgid_plural=plural, msgstr_plural={0: "", 1: ""} if plural else {})
        entry = known.get((text, plural), new)
        entry.occurrences = [(path, "") for path in dict.fromkeys(paths)]
        catalogue.append(entry)


def main() -> None:
    """Bring all catalogues up to date and compile them."""
    for path in LOCALE.glob("*/LC_MESSAGES/django.po"):
        catalogue = polib.pofile(str(path), wrapwidth=120)
        update(catalogue)
        catalogue.save()
        path.with_suffix(".mo").write_bytes(catalogue.to_binary())
        print(
            f"{path.relative_to(PACKAGE)}: {len(catalogue)} texts, {len(catalogue.untranslated_entries())} to translate"
        )


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    django.setup()
    main()
