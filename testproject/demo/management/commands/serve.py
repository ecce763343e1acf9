"""``manage.py serve [HOST:]PORT``: the test project under uvicorn, its admin and HTTP doors, event streams included."""

from argparse import ArgumentParser
from typing import Any

import uvicorn
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse


class Command(BaseCommand):
    help = "Serve the test project with uvicorn."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("address", nargs="?", default="127.0.0.1:8000", help="[HOST:]PORT (default: %(default)s)")

    def handle(self, *args: Any, address: str, **options: Any) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise CommandError(f"{address!r} is not [HOST:]PORT.")
        self.stdout.write(
            f"The admin, with its queues: http://{host or '127.0.0.1'}:{port}{reverse('admin:leasequeue_overview')}"
            " (make a login with 'manage.py createsuperuser'; 'make demo' has one)"
        )
        uvicorn.run("testproject.asgi:application", host=host or "127.0.0.1", port=int(port), log_level="info")
