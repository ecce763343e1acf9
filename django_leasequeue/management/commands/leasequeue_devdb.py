"""``manage.py leasequeue_devdb``: the embedded PostgreSQL of a project under development."""

import subprocess
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_leasequeue.devdb import DevDBError, Server, default_data_dir
from django_leasequeue.management import LeaseQueueCommand, failure


class Command(LeaseQueueCommand):
    """Start, stop and look at the embedded PostgreSQL."""

    help = gettext_noop("Start, stop, look at or open the embedded PostgreSQL of a project under development.")
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        project = getattr(settings, "BASE_DIR", None) or Path.cwd()
        shared = CommandParser(add_help=False)
        directory, usual = _("data directory (%(default)s)"), default_data_dir(project)
        shared.add_argument("--data", type=Path, default=usual, metavar="DIR", help=directory)
        actions = parser.add_subparsers(dest="action", required=True, metavar="start|stop|status|psql")
        start = actions.add_parser("start", parents=[shared], help=_("start it and print its DATABASE_URL"))
        start.add_argument("--no-fsync", action="store_true", help=_("faster; a failing machine loses the data"))
        stop = actions.add_parser("stop", parents=[shared], help=_("stop it"))
        stop.add_argument("--if-idle", action="store_true", help=_("leave it running while a client is connected"))
        actions.add_parser("status", parents=[shared], help=_("say whether it runs; exit code 3 when it does not"))
        psql = actions.add_parser("psql", parents=[shared], help=_("open a psql session, starting it if needed"))
        psql.add_argument("-c", "--command", help=_("run this and end"))
        psql.add_argument("arguments", nargs="*", metavar="-- ARGS", help=_("passed on to psql"))

    def handle(self, *args: Any, **options: Any) -> None:
        server = Server(options["data"], durable=not options.get("no_fsync"))
        try:
            getattr(self, f"_{options['action']}")(server, options)
        except DevDBError as error:
            raise CommandError(str(error)) from error

    def _start(self, server: Server, options: dict[str, Any]) -> None:
        text = _("PostgreSQL {version} was already running, data in {directory}")
        if server.start():
            text = _("PostgreSQL {version} started, data in {directory}")
        self.line(text, version=server.status().version, directory=server.data_dir)
        self.stdout.write(f"DATABASE_URL={server.url()}")
        if server.data_dir == default_data_dir(getattr(settings, "BASE_DIR", None) or Path.cwd()):
            setting = 'DATABASES = {"default": django_leasequeue.devdb.database(BASE_DIR)}'
            self.line(_("In the settings: {setting}"), setting=setting)

    def _stop(self, server: Server, options: dict[str, Any]) -> None:
        if options["if_idle"] and (connections := server.status().connections):
            self.line(_("PostgreSQL goes on: {number} connected"), number=connections)
        else:
            self.stdout.write(_("PostgreSQL stopped") if server.stop() else _("PostgreSQL was not running"))

    def _status(self, server: Server, options: dict[str, Any]) -> None:
        status = server.status()
        if not status.running:
            raise failure(_("PostgreSQL is not running, data in {directory}"), directory=server.data_dir, returncode=3)
        text = _("PostgreSQL {version} is running, process {pid}, {number} connected, data in {directory}")
        self.line(text, version=status.version, pid=status.pid, number=status.connections, directory=status.data_dir)
        self.stdout.write(f"DATABASE_URL={server.url()}")

    def _psql(self, server: Server, options: dict[str, Any]) -> None:
        program = server.bin_dir / "psql"
        if not program.is_file():
            raise failure(_("There is no psql in {directory}."), directory=server.bin_dir)
        server.start()
        self.stdout.flush()
        command = ["--command", options["command"]] if options["command"] else []
        words = [program, *command, *options["arguments"], server.url()]
        finished = subprocess.run(words, check=False)  # nosec B603  # no shell; psql as its caller asks
        if finished.returncode:
            raise failure(_("psql ended with code {code}"), code=finished.returncode, returncode=finished.returncode)
