"""A project that has the package installed runs its own tests: another pytest, another database, warnings as errors."""

import os
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.documents import blocks
from tests.support.environment import python

SETTINGS = """
    import os
    import django
    from django_leasequeue.devdb import database_from_url

    SECRET_KEY = "host"
    USE_TZ = True
    INSTALLED_APPS = [
        *(["django_tasks"] if django.VERSION < (6, 0) else []),
        "django.contrib.postgres",
        "pgtrigger",
        "django_leasequeue",
        "shop",
    ]
    DATABASES = {"default": database_from_url(os.environ["DATABASE_URL"])}
    DATABASES["default"]["TEST"] = {"NAME": os.environ["HOST_TEST_DATABASE"]}
    # Queues may be there as well, and tests may not use it.
    DATABASES["other"] = {**DATABASES["default"], "TEST": {"NAME": os.environ["HOST_TEST_DATABASE"] + "_other"}}
    DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
    TASKS = {"default": {"BACKEND": "django_leasequeue.tasks.LeaseQueueBackend", "QUEUES": []}}
    LEASEQUEUE = {"QUEUES": {"thumbnails": {"preset": "jobqueue"}}, "ROUTER": "shop.routing.route"}
"""

ROUTING = 'def route(project, queue): return "other" if queue == "far" else "default"'

MODELS = """
    from django.db import models

    class Order(models.Model):
        paid = models.BooleanField(default=False)
"""

TASKS = """
    from django_leasequeue import Queue
    from django_leasequeue.tasks import task

    thumbnails = Queue("thumbnails")

    @task
    def pay(order):
        from shop.models import Order

        Order.objects.filter(pk=order).update(paid=True)

    @task
    async def apay(order):
        from shop.models import Order

        await Order.objects.filter(pk=order).aupdate(paid=True)
"""

TESTS = """
    import pytest
    from django.db import transaction
    from django.test import TestCase, TransactionTestCase

    from django_leasequeue import Consumer
    from django_leasequeue.testing import LeaseQueueTestMixin
    from shop.models import Order
    from shop.tasks import apay, pay, thumbnails


    @pytest.mark.parametrize("task", [pay, apay])
    @pytest.mark.django_db
    def test_in_a_transaction(leasequeue, task):
        order = Order.objects.create()
        task.enqueue(order.pk)
        leasequeue.assert_enqueued(task, order.pk)
        assert [ran.state for ran in leasequeue.drain()] == ["completed"]
        order.refresh_from_db()
        assert order.paid


    @pytest.mark.django_db(transaction=True)
    def test_a_real_worker_and_no_fixture():
        with Consumer(thumbnails, lambda job: job.payload + 1, reaper=False):
            assert thumbnails.enqueue_and_wait(1, timeout=120) == 2


    class Orders(LeaseQueueTestMixin, TestCase):
        @classmethod
        def setUpTestData(cls):
            cls.order = Order.objects.create()

        def test_paid(self):
            pay.enqueue(self.order.pk)
            self.leasequeue.drain()
            self.order.refresh_from_db()
            self.assertTrue(self.order.paid)


    class Outside(LeaseQueueTestMixin, TransactionTestCase):
        def setUp(self):
            super().setUp()
            self.order = Order.objects.create()

        test_paid = Orders.test_paid
"""


@pytest.fixture
def host(tmp_path: Path, subprocess_env: dict[str, str]) -> tuple[Path, dict[str, str]]:
    for name, text in {
        "settings.py": SETTINGS, "shop/__init__.py": "", "shop/models.py": MODELS, "shop/routing.py": ROUTING,
        "shop/tasks.py": TASKS, "test_shop.py": TESTS,
        "pytest.ini": "[pytest]\nfilterwarnings = error\naddopts = -p no:cacheprovider -p no:asyncio\n",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    environment = {
        **subprocess_env, "DJANGO_SETTINGS_MODULE": "settings", "HOST_TEST_DATABASE": f"test_host_{os.getpid()}",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), subprocess_env["PYTHONPATH"]]),
    }  # fmt: skip
    return tmp_path, {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}


def said(host: tuple[Path, dict[str, str]], *arguments: str) -> str:
    folder, environment = host
    done = python("-m", *arguments, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "says"), [("pytest -q", "5 passed"), ("django test test_shop --noinput", "Ran 2 tests")]
)
def test_with_pytest_and_with_djangos_runner(host: tuple[Path, dict[str, str]], command: str, says: str) -> None:
    assert says in said(host, *command.split())


@pytest.mark.slow
def test_the_pages_examples(host: tuple[Path, dict[str, str]]) -> None:
    folder, _ = host
    (folder / "test_shop.py").unlink()
    written = [block for block in blocks("how-to/testing.md") if block.word.startswith("file=")]
    for block in written:
        (folder / block.word.removeprefix("file=")).write_text(block.text, encoding="utf-8")
    assert len(written) == 7
    assert "7 passed" in said(host, "pytest", "-q")


@pytest.mark.slow
def test_a_project_without_django_settings_is_left_alone(tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    plain = {name: value for name, value in subprocess_env.items() if name != "DJANGO_SETTINGS_MODULE"}
    options = ["-p", "no:django", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    assert "1 passed" in said((tmp_path, plain), "pytest", "-q", *options)
