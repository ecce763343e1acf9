"""Settings for the demo, the tests and the benchmarks: ready to run, not for production."""

import os
from pathlib import Path

import django

from django_leasequeue import __version__, devdb

BASE_DIR = Path(__file__).resolve().parent.parent

# Made up, and public: this project is never deployed.
SECRET_KEY = "only-for-development-and-tests"
# The benchmark and its processes run without, as production does.
DEBUG = os.environ.get("TESTPROJECT_DEBUG") != "off"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "testserver"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    # The backport that Django 5.2 needs for @task; Django 6 has it in core.
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "pgtrigger",
    "rest_framework",
    "drf_spectacular",
    "django_leasequeue",
    "testproject.bench",
    "testproject.demo",
    # Its modules declare tasks, which workers import from the installed apps alone.
    "tests",
]
MIGRATION_MODULES = {"tests": None}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "testproject.urls"
ASGI_APPLICATION = "testproject.asgi.application"
WSGI_APPLICATION = "testproject.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# Without a DATABASE_URL: the embedded PostgreSQL, which manage.py, asgi.py and wsgi.py start when it does not run.
# Reading the settings starts nothing.
EMBEDDED_DATABASE = devdb.Server(devdb.default_data_dir(BASE_DIR))
DATABASE_URL = os.environ.get("DATABASE_URL")
DATABASES = {"default": devdb.database(BASE_DIR)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TASKS = {
    "default": {
        "BACKEND": "django_leasequeue.tasks.LeaseQueueBackend",
        # Any name: tests and benchmarks have queues of their own.
        "QUEUES": [],
    },
}

REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
SPECTACULAR_SETTINGS = {
    "TITLE": "django-leasequeue",
    "DESCRIPTION": "Queues and logs over HTTP: `/v0` for workers in any language, `/v1` for OpenStack Zaqar's clients.",
    "VERSION": __version__,
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
