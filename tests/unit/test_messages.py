"""Texts that people see are marked for translation, and the catalogues have all of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import django
import polib
import pytest

from tests.messages import LOCALE, MARKS, PACKAGE, found

PYTHON = [
    *PACKAGE.glob("admin/*.py"), *PACKAGE.glob("management/**/*.py"), *PACKAGE.glob("templatetags/*.py"),
    PACKAGE / "apps.py", PACKAGE / "engine/flow/figures.py", PACKAGE / "reaper/concerns.py",
    PACKAGE / "reaper/status.py", PACKAGE / "tasks/progress.py", PACKAGE / "metrics/charts.py",
]  # fmt: skip
TEMPLATES = sorted(PACKAGE.glob("templates/**/*.html"))
CATALOGUES = sorted(LOCALE.glob("*/LC_MESSAGES/django.po"))
#: Arguments that people read: by keyword, and by place of the functions that take them.
_KEYWORDS = {"description", "label", "help", "help_text", "title", "caption"}
_PLACES = {
    "column": (0,), "moment_of": (1,), "count_of": (1,), "badge": (1,), "Concern": (1,), "say": (1,), "write": (0,),
    "success": (1,), "warning": (1,), "error": (1,), "add_message": (2,), "message_user": (1,), "add_error": (1,),
    "ValidationError": (0,), "InvalidOption": (0,), "CommandError": (0,), "ArgumentTypeError": (0,), "Series": (0,),
    "line": (0,), "failure": (0,),
}  # fmt: skip
#: Words that are the same in all languages: names of settings, examples of values, formats.
_SAME = re.compile(r"DATABASE_URL=|3, >=3, 3\.\.5|\(?%\(default\)s\)?|audit\.\w+|PostgreSQL|manage\.py \w+")
_LETTERS = re.compile(r"[^\W\d_]{2}")


def _literals(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an argument is made of, without those that are marked."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value for part in node.values if isinstance(part, ast.Constant))
    elif isinstance(node, ast.IfExp):
        yield from (*_literals(node.body), *_literals(node.orelse))
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        for side in [node.left, node.right] if isinstance(node, ast.BinOp) else node.values:
            yield from _literals(side)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        yield from _literals(node.func.value)


def unmarked(source: str) -> list[str]:
    """Return the texts of a module that people see and that no language but English has."""
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        seen = [node.args[place] for place in _PLACES.get(name, ()) if place < len(node.args)]
        seen += [keyword.value for keyword in node.keywords if keyword.arg in _KEYWORDS]
        if name in MARKS:
            wrong += [f"{ast.unparse(arg)} is no constant" for arg in node.args[:1] if isinstance(arg, ast.JoinedStr)]
        for text in (text for arg in seen for text in _literals(arg)):
            if _LETTERS.search(_SAME.sub("", text)) and not text.startswith("<"):
                wrong.append(text)
    return wrong


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_code_marks_every_text(path: Path) -> None:
    assert unmarked(path.read_text()) == []


def test_a_text_that_is_not_marked_is_found() -> None:
    source = """
class Command:
    def handle(self):
        self.stdout.write(f"Moved {number} jobs")
        parser.add_argument("--all", help="all of them" if few else _("few of them"))
        messages.error(request, "Nothing " + "matches.")
        column("state", str)
        raise CommandError("no {thing}".format(thing=1))
        _(f"{number} jobs")
"""
    wrong = [
        "Moved  jobs",
        "all of them",
        "Nothing ",
        "matches.",
        "state",
        "no {thing}",
        "f'{number} jobs' is no constant",
    ]
    assert unmarked(source) == wrong


_COMMENTS = re.compile(r"{% comment %}.*?{% endcomment %}|{#.*?#}|<code>.*?</code>|<!--.*?-->", re.DOTALL)
_MARKED = re.compile(r"{% blocktranslate.*?{% endblocktranslate %}", re.DOTALL)
_TAG = re.compile(r"{%.*?%}|{{.*?}}", re.DOTALL)
_ATTRIBUTE = re.compile(r'(?:aria-label|title|placeholder|alt|data-label)="([^"]*)"')
#: Texts in expressions: arguments of filters and of includes.
_ARGUMENT = re.compile(r'(?:\bdefault(?:_if_none)?:|\b(?:label|caption)=)"([^"]*)"')
#: Examples of values, the class of our pages, and a name.
_EXAMPLES = {"2h, 7d, 2026-11-20T18:30", "30min", "data.kwargs.customer = 17", "leasequeue", "PostgreSQL", "JSON"}


def unmarked_in_template(source: str) -> list[str]:
    source = _MARKED.sub("", _COMMENTS.sub("", source))
    found = _ARGUMENT.findall("".join(_TAG.findall(source)))
    plain = _TAG.sub("", source)
    found += [*_ATTRIBUTE.findall(plain), *re.sub(r"<[^>]*>", "\n", plain).splitlines()]
    texts = [re.sub(r"&\w+;", "", text).strip() for text in found]
    return [text for text in texts if _LETTERS.search(text) and text not in _EXAMPLES]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_templates_mark_every_text(path: Path) -> None:
    assert unmarked_in_template(path.read_text()) == []


def test_a_text_of_a_template_that_is_not_marked_is_found() -> None:
    source = """
<p title="{% translate "Queue" %}">{{ number }} jobs</p><b aria-label="All {{ name }}">{% translate "x" %}</b>
{% include "x.html" with label="Time" %}{{ name|default:"none" }}
{% blocktranslate %}Some {{ words }}{% endblocktranslate %}"""
    assert unmarked_in_template(source) == ["Time", "none", "All", "jobs"]


@pytest.mark.parametrize("path", [*PACKAGE.glob("static/leasequeue/*.js")], ids=lambda path: path.name)
def test_scripts_have_their_texts_from_the_page(path: Path) -> None:
    code = re.sub(r"/\*.*?\*/|^\s*//.*$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    shown = re.findall(
        r"textContent\s*[=:]\s*(?:[^;]*?)([\"'`])(.+?)\1|say\([^)]*?[\"'`]([^\"'`]* [^\"'`]*)[\"'`]", code
    )
    assert [text for match in shown for text in match[1:] if _LETTERS.search(re.sub(r"\$?{.*}", "", text))] == []


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parts[-3])
def test_catalogues_are_complete(path: Path) -> None:
    """`make messages` brings them up to date."""
    catalogue = polib.pofile(str(path))
    assert {(entry.msgid, entry.msgid_plural) for entry in catalogue} == set(found())
    assert [*catalogue.untranslated_entries(), *catalogue.fuzzy_entries(), *catalogue.obsolete_entries()] == []
    assert path.with_suffix(".mo").read_bytes() == catalogue.to_binary()


_PLACEHOLDER = re.compile(r"%\(\w+\)s|%%|\{\w*(?:![rs])?(?::[^}]*)?\}|</?\w+>|--[a-z-]+|[A-Z]+_[A-Z_]+|\n")


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parts[-3])
def test_translations_have_the_placeholders_of_their_texts(path: Path) -> None:
    def names(text: str) -> list[str]:
        return sorted(_PLACEHOLDER.findall(text))

    for entry in polib.pofile(str(path)):
        for text in entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr]:
            assert names(text) == names(entry.msgid_plural or entry.msgid), entry.msgid


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parts[-3])
def test_what_django_translates_stays_as_django_has_it(path: Path) -> None:
    """Of one text in two apps the first one's translation counts, on all pages."""
    catalogue = polib.pofile(str(path))
    for theirs in Path(django.__file__).parent.glob(f"c*/**/locale/{path.parts[-3]}/LC_MESSAGES/django.po"):
        for entry in polib.pofile(str(theirs)):
            ours = None if entry.msgctxt else catalogue.find(entry.msgid)
            assert ours is None or ours.msgstr == entry.msgstr, entry.msgid
