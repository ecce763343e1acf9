"""An app ``shop`` made of the blocks of a page: its modules, models with tables, templates, and tests."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import override_settings
from django.urls import path

from tests.support.documents import blocks


@contextmanager
def files(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Write the files of a page, to be imported while the block runs; yield their names."""
    names = []
    for block in blocks(page):
        if block.word:
            name = block.word.removeprefix("file=")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(block.text, encoding="utf-8")
            names.append(name)
    (folder / "shop/__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    try:
        yield names
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]


@contextmanager
def shop(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Install the files of a page as the app ``shop``; yield the module of its tests, or the one named ``orders``."""
    templates: list[dict[str, Any]] = deepcopy(settings.TEMPLATES)
    templates[0]["DIRS"] = [folder / "shop/templates"]
    urls = ModuleType("shop_urls")
    monkeypatch.setitem(sys.modules, "shop_urls", urls)
    registered = dict(admin.site._registry)
    installed = [*settings.INSTALLED_APPS, "shop"]
    try:
        with (
            files(page, folder, monkeypatch) as names,
            override_settings(INSTALLED_APPS=installed, TEMPLATES=templates, ROOT_URLCONF="shop_urls"),
        ):
            with connection.schema_editor() as editor:
                for model in apps.get_app_config("shop").get_models():
                    editor.create_model(model)
            if "shop/admin.py" in names:
                importlib.import_module("shop.admin")
            urls.urlpatterns = [path("admin/", admin.site.urls)]  # type: ignore[attr-defined]
            tests = ["shop/orders.py", *(name for name in names if "/test_" in name)][-1]
            yield importlib.import_module(tests.removesuffix(".py").replace("/", "."))
    finally:
        admin.site._registry = registered
        apps.all_models.pop("shop", None)
        apps.clear_cache()
        ContentType.objects.clear_cache()
