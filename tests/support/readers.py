"""Readers of code blocks by language: each raises where a block is not what it says it is."""

import ast
import configparser
import doctest
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable

import yaml
from django.conf import settings
from django.core.management import CommandError, get_commands, load_command_class
from django.template import Template

_DOCKERFILE = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "SHELL",
    "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


def read_python(text: str) -> None:
    if text.lstrip().startswith(">>>"):
        for example in doctest.DocTestParser().get_examples(text):
            compile(example.source, "<example>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return
    compile(text, "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def read_shell(text: str) -> None:
    """Let bash read it; a command of ``manage.py`` takes its arguments, and ``make`` knows its target."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        words = shlex.split(line.partition(" > ")[0], comments=True)
        if "manage.py" in words[:2]:
            read_command(words[words.index("manage.py") + 1 :])
        elif "make" in words[:2]:
            target = words[words.index("make") + 1]
            makefile = (settings.BASE_DIR / "Makefile").read_text(encoding="utf-8")
            if not re.search(rf"^{target}:", makefile, re.MULTILINE):
                raise ValueError(f"make knows no {target}")


def read_command(words: list[str]) -> None:
    name, *arguments = words
    if name not in get_commands():
        raise ValueError(f"there is no command {name}")
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    parser.allow_abbrev = False
    for action in parser._actions:
        if action.dest == "database":  # a reader's settings may have more of them
            action.choices = None
    try:
        parser.parse_args(arguments)
    except (CommandError, SystemExit) as error:
        raise ValueError(f"{name}: {error}") from error


def read_ini(text: str) -> None:
    """Read sections and their values; of a unit of systemd the name stands in a comment."""
    joined = re.sub(r"\\\n\s*", " ", text)
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(joined)
    if ".service\n" in text:
        missing = [
            f"{section}.{key}"
            for section, key in (
                ("Unit", "Description"), ("Service", "User"), ("Service", "Environment"),
                ("Service", "WorkingDirectory"), ("Service", "ExecStart"), ("Service", "Restart"),
                ("Install", "WantedBy"),
            )
            if not found.has_option(section, key)
        ]  # fmt: skip
        if missing:
            raise ValueError(f"the unit lacks {', '.join(missing)}")
        words = shlex.split(found["Service"]["ExecStart"])
        if "manage.py" in words:
            read_command(words[words.index("manage.py") + 1 :])


def read_yaml(text: str) -> None:
    list(yaml.safe_load_all(text))


def read_dockerfile(text: str) -> None:
    """Read the steps: known ones, the first of them ``FROM``, lists as JSON."""
    steps = [line for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line.strip() and not line.startswith("#")]
    for step in steps:
        word, _, rest = step.partition(" ")
        if word not in _DOCKERFILE or not rest.strip():
            raise ValueError(f"no step of a Dockerfile: {step}")
        if rest.startswith("["):
            json.loads(rest)
        if word in ("COPY", "ADD") and len(shlex.split(rest)) < 2:
            raise ValueError(f"from where to where? {step}")
    if not steps or not steps[0].startswith("FROM "):
        raise ValueError("a Dockerfile begins with FROM")


def read_nginx(text: str) -> None:
    """Read directives, one a line: each ends with a semicolon, or begins or ends a block."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', "quoted", text)
    depth = 0
    for line in (line.partition("#")[0].strip() for line in bare.splitlines()):
        depth += line.endswith("{") - (line == "}")
        if depth < 0 or (line and line[-1] not in ";{" and line != "}"):
            raise ValueError(f"nginx: {line}")
    if depth:
        raise ValueError("nginx: a block does not end")


READERS: dict[str, Callable[[str], object]] = {
    "html": Template, "python": read_python, "sh": read_shell, "shell": read_shell, "json": json.loads,
    "toml": tomllib.loads, "yaml": read_yaml, "ini": read_ini, "dockerfile": read_dockerfile, "nginx": read_nginx,
}  # fmt: skip
