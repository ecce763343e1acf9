"""The settings of the rude soak's processes."""

from testproject.settings import *  # noqa: F403  (the whole of the other settings, by design)
from testproject.settings import INSTALLED_APPS as _APPS
from testproject.settings import TASKS as _TASKS

_RUDE = "tests.worker.rude_tasks"
INSTALLED_APPS = [*_APPS, "tests.soak.rude_app.apps.RudeApp"]
TASKS = {**_TASKS, "elsewhere": {"BACKEND": "tests.soak.rude_app.deeds.HangingBackend", "QUEUES": []}}
LEASEQUEUE = {
    "RECURRING": {
        "tick": {"task": f"{_RUDE}.tick", "schedule": "every 5 seconds"},
        "often": {"task": f"{_RUDE}.tick", "schedule": "every second"},
        "raises": {"task": f"{_RUDE}.fails_at_its_tick", "schedule": "every 5 seconds"},
        "hangs": {"task": f"{_RUDE}.tick", "schedule": "every 30 seconds", "backend": "elsewhere"},
    }
}
