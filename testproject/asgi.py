"""ASGI entry point of the demo and test project."""

import os

from django.core.asgi import get_asgi_application

from testproject.database import start_embedded_database

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
start_embedded_database()
application = get_asgi_application()
