"""Management commands, and what they say."""

import io

from django.core.management import CommandError, call_command


def said(*words: object) -> str:
    out = io.StringIO()
    call_command(*map(str, words), stdout=out, stderr=io.StringIO())
    return out.getvalue()


def warned(*words: object) -> str:
    """Call a command, and return what it wrote to its standard error."""
    err = io.StringIO()
    call_command(*map(str, words), stdout=io.StringIO(), stderr=err)
    return err.getvalue()


def tried(*words: object) -> tuple[str, CommandError | None]:
    """Call a command; return what it wrote to its standard output, and the error that it ended with."""
    out, failure = io.StringIO(), None
    try:
        call_command(*map(str, words), stdout=out)
    except CommandError as error:
        failure = error
    return out.getvalue(), failure
