"""Tasks are declared while Django is still loading apps, so importing the door must not need them."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from django.conf import settings

settings.configure(
    TASKS={"default": {"BACKEND": "django_leasequeue.tasks.LeaseQueueBackend", "OPTIONS": {"preset": "django"}}},
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
)
import django_leasequeue.tasks as door

@door.task(max_attempts=3, backoff="exponential", timeout=5)
def work():
    pass

work.using(priority=3, timeout=2)
import django_leasequeue.engine, django_leasequeue.engine.queues.presets, django_leasequeue.engine.queues.routing
loaded = sorted(name for name in sys.modules if name.startswith("django_leasequeue.models"))
assert not loaded, loaded
print("no model was loaded")
"""


@pytest.mark.slow
def test_declaring_tasks_loads_no_model() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "no model was loaded"), done.stderr
