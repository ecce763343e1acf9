"""Debug toolbar: its SQL panel, in the page."""

import re
from html import unescape
from typing import Any

from testproject.settings import INSTALLED_APPS, MIDDLEWARE
from tests.hosts.settings_plain import *  # noqa: F403

DEBUG = True
INSTALLED_APPS = [*INSTALLED_APPS, "debug_toolbar"]
MIDDLEWARE = ["debug_toolbar.middleware.DebugToolbarMiddleware", *MIDDLEWARE]
DEBUG_TOOLBAR_CONFIG = {"RENDER_PANELS": True, "SHOW_TOOLBAR_CALLBACK": lambda request: True}


def seen(response: Any) -> int:
    text = "" if response is None else unescape(re.sub("<[^>]*>", "", response.content.decode()))
    return " ".join(text.split()).count("INSERT INTO leasequeue_job")
