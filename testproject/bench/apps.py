"""The benchmark as an app: its management command."""

from __future__ import annotations

from django.apps import AppConfig


class BenchConfig(AppConfig):
    name = "testproject.bench"
