"""Staff with exactly the permissions that a test gives them."""

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

VIEWS = ("view_queue", "view_job", "view_worker")


def person(*codenames: str, name: str = "somebody", staff: bool = True) -> User:
    """Make a user with these permissions of the app (codenames)."""
    user, _ = User.objects.get_or_create(username=name, defaults={"is_staff": staff})
    found = Permission.objects.filter(content_type__app_label="leasequeue", codename__in=codenames)
    assert sorted({each.codename for each in found}) == sorted(set(codenames))
    user.user_permissions.set(found)
    return user


def signed_in(*codenames: str, name: str = "somebody", **client: Any) -> Client:
    made = Client(**client)
    made.force_login(person(*codenames, name=name))
    return made


def boss() -> Client:
    """Somebody who may do everything, signed in."""
    made = Client()
    made.force_login(User.objects.create_superuser("boss"))
    return made
