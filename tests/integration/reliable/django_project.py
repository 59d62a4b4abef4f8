"""Settings of a Django project for tests, in a process of its own: Django has one each."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import django
from django.conf import settings


def set_up(url: str) -> None:
    """Configure Django for a database: a path, or a URL of PostgreSQL or MariaDB.

    Beside a file there is a second one, with the alias ``stock``.
    """
    databases = {"default": _database(url)}
    if url.startswith("sqlite"):
        databases["stock"] = _database(f"{url}-stock")
    settings.configure(
        DATABASES=databases,
        INSTALLED_APPS=["ternmq.reliable.django"],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        USE_TZ=True,
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def _database(url: str) -> dict[str, object]:
    if url.startswith("sqlite"):
        # A backend of the project, as docs/guide/database.md has it for Django before 5.1.
        old = django.VERSION < (5, 1)
        engine = "tests.integration.reliable.immediate" if old else "django.db.backends.sqlite3"
        mode = {} if old else {"transaction_mode": "IMMEDIATE"}
        return {
            "ENGINE": engine, "NAME": url.partition("///")[2], "OPTIONS": {"timeout": 20, **mode},
        }  # fmt: skip
    parts = urlsplit(url)
    if parts.scheme.startswith("mysql"):
        import pymysql

        pymysql.version_info = (2, 2, 1, "final", 0)  # Django asks the version of mysqlclient
        pymysql.install_as_MySQLdb()
    kind = "postgresql" if parts.scheme.startswith("postgresql") else "mysql"
    return {
        "ENGINE": f"django.db.backends.{kind}", "NAME": parts.path.lstrip("/"),
        "USER": parts.username or "", "HOST": parts.hostname or "", "PORT": parts.port or 0,
    }  # fmt: skip


def run(program: str, url: str, broker: str) -> None:
    """Run a program of the tests with a project; the last line says that it came to its end."""
    set_up(url)
    sys.path.insert(0, str(Path(__file__).parents[3]))
    names: dict[str, object] = {"broker": broker}
    exec(compile(program, "program", "exec"), names)
    print("done", flush=True)


if __name__ == "__main__":
    run(sys.stdin.read(), sys.argv[1], sys.argv[2])
