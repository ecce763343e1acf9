"""The configuration of a topic over HTTP, and the queue options that it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...conf.queue_options import OPTIONS
from ...enums import Durability
from ...exceptions import InvalidOption

#: A name of a topic; other doors allow more.
NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
_NAME = re.compile(NAME_PATTERN.removesuffix("$") + r"\Z")

#: The fields that are queue options of the same name.
_SAME = tuple(name for name, option in OPTIONS.items() if option.http)
#: Defaults that are others than those of a queue.
HTTP_DEFAULTS = {"type": "log"}

#: Fields that the protocol does not have: shown where they are not as the protocol is without them.
_EXTENSIONS = {"priority_order": "none"}

#: Every field of a configuration, in the order in which the documents show them.
CONFIG_FIELDS = (*_SAME, "durable", *_EXTENSIONS)

#: The fields that name another topic: a key with prefixes may name those alone that it may use.
NAMES_TOPIC = ("dead_letter",)


def check_name(name: str, what: str = "The name of a topic") -> str:
    """Return ``name`` if it can name a topic.

    Raises:
        InvalidOption: it cannot.
    """
    if not _NAME.match(name):
        raise InvalidOption(
            f"{what} must be 1 to 255 letters, digits, '.', '_', ':' or '-', beginning with a letter or digit; it is"
            f" {name[:300]!r}."
        )
    return name


def to_options(config: Mapping[str, Any], topic: str) -> dict[str, Any]:
    """Return queue options for a valid configuration of a topic.

    ``durability`` wins; without it ``durable`` means ``fsync``.

    Raises:
        InvalidOption: the topic would be its own dead-letter topic.
    """
    if config.get("dead_letter") == topic:
        raise InvalidOption("dead_letter must be another topic than the topic itself.")
    options = {name: config[name] for name in (*_SAME, *_EXTENSIONS) if name in config}
    if options.get("durability") is None:
        options["durability"] = str(Durability.FSYNC if config.get("durable") else Durability.DISK)
    return options


def to_config(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a topic with these options, every field of it."""
    config = {name: options[name] for name in _SAME}
    config["durable"] = options["durability"] == Durability.FSYNC
    return config | {name: options[name] for name, usual in _EXTENSIONS.items() if options[name] != usual}
