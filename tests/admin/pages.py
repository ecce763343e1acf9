"""Reading the pages: what is in them, that a strict Content-Security-Policy lets them be, and who may see them."""

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

VIEWS = ("view_queue", "view_job", "view_worker")


class Page(HTMLParser):
    """A page taken apart: its tags with their attributes, and its text."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.inline: list[str] = []
        self._inside: list[str] = []
        self.feed(body)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag in ("script", "style"):
            self._inside.append(tag)
        if tag == "style" or "style" in found:
            self.inline.append(f"style in <{tag}>")
        self.inline += [f"{name} in <{tag}>" for name in found if name.startswith("on")]
        for name in ("href", "src", "action", "xlink:href"):
            if str(found.get(name) or "").strip().lower().startswith(("javascript:", "data:")):
                self.inline.append(f"{name}={found[name]}")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside:
            if data.strip():
                self.inline.append(f"text in <{self._inside[-1]}>: {data.strip()[:40]}")
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def ids(self) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get("id"))]

    def unnamed_fields(self) -> list[str]:
        labelled = {attrs.get("for") for tag, attrs in self.tags if tag == "label"}
        return [
            str(attrs)
            for tag, attrs in self.tags
            if tag in ("input", "select", "textarea")
            and attrs.get("type") not in ("hidden", "submit", "checkbox")
            and attrs.get("id") not in labelled
            and "aria-label" not in attrs
        ]


def read(answer: Any) -> Page:
    """The page of an answer, with what holds for every page: nothing inline, fields with a name, ids that differ."""
    assert answer.status_code == 200
    page = Page(answer.content.decode())
    assert (page.inline, page.unnamed_fields()) == ([], [])
    assert len(page.ids()) == len(set(page.ids()))
    return page


def messages(answer: Any) -> str:
    return " ".join(str(message) for message in answer.context["messages"])


def admin_url(name: str, /, *args: Any, **query: Any) -> str:
    return reverse(f"admin:leasequeue_{name}", args=args, query=query)


def look(client: Client, name: str, /, *args: Any, **query: Any) -> Page:
    return read(client.get(admin_url(name, *args, **query)))


def told(client: Client, name: str, /, *args: Any, **data: Any) -> str:
    answer = client.post(admin_url(name, *args), data, follow=True)
    assert answer.status_code == 200
    return messages(answer)


def walk(client: Client, name: str, /, **query: Any) -> Iterator[Any]:
    url: str | None = admin_url(name, **query)
    while url:
        answer = client.get(url)
        yield answer
        url = answer.context["next"] and admin_url(name) + answer.context["next"]


def person(*codenames: str, name: str = "somebody", staff: bool = True) -> User:
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
    made = Client()
    made.force_login(User.objects.create_superuser("boss"))
    return made
