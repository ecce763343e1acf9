"""Management commands, and what they say."""

import io

from django.core.management import call_command


def said(*words: object) -> str:
    """Call a command; return what it wrote to its standard output."""
    out = io.StringIO()
    call_command(*map(str, words), stdout=out, stderr=io.StringIO())
    return out.getvalue()
