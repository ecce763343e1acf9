"""The settings of processes whose tasks carry a context."""

from testproject.settings import *  # noqa: F403  # the whole of the other settings, by design

LEASEQUEUE = {
    "CONTEXT": {"CAPTURE": "tests.tasks.context_samples.capture", "RESTORE": "tests.tasks.context_samples.restore"}
}
