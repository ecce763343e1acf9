"""ASGI entry point of the demo and test project."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

from django_leasequeue.http.asgi import beside
from testproject.database import start_embedded_database

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
start_embedded_database()
# The HTTP doors are served beside Django's middleware, which they do not need.
application = beside(ASGIStaticFilesHandler(get_asgi_application()), "/v0/", "/v1/")
