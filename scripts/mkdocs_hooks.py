"""Hook of mkdocs: fences without words for tests, the changelog, the version, a search that finds the right page."""

import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

#: Words that newcomers type, and the page that has to come first.
ANSWERS = {
    "later": "how-to/later", "delay": "how-to/later", "countdown": "how-to/later", "eta": "how-to/later",
    "retry": "how-to/retries", "backoff": "how-to/retries", "timeout": "how-to/time-limits", "cancel": "how-to/cancel",
    "priority": "how-to/priorities", "unique": "how-to/unique-tasks", "rate limit": "how-to/limits",
    "schedule": "how-to/recurring-tasks", "cron": "how-to/recurring-tasks", "email": "how-to/email",
    "test": "how-to/testing", "progress": "how-to/progress",
    "workflow": "how-to/workflows", "chain": "how-to/workflows",
    "deploy": "how-to/deploy", "systemd": "how-to/deploy", "production": "how-to/production",
    "docker": "how-to/containers", "kubernetes": "how-to/containers", "upgrade": "how-to/backup",
    "backup": "how-to/backup", "monitor": "how-to/monitoring", "prometheus": "how-to/monitoring",
    "pgbouncer": "how-to/pgbouncer", "transaction": "how-to/exactly-once", "async": "reference/tasks",
    "exactly once": "how-to/exactly-once", "idempotent": "how-to/idempotent-consumers",
    "dead letter": "how-to/dead-letters", "celery": "how-to/move-from-celery", "rq": "how-to/move-from-rq",
    "huey": "how-to/move-from-huey", "ox": "how-to/move-from-django-backends",
    "vtasks": "how-to/move-from-django-backends", "install": "tutorial/first-worker", "worker": "reference/runworker",
    "settings": "reference/settings", "admin": "how-to/admin", "scale": "how-to/several-servers",
}  # fmt: skip
#: What the text of a page does not say in these words: they are searched as its tags are.
WORDS = {page: " ".join(word for word, answer in ANSWERS.items() if answer == page) for page in ANSWERS.values()}


def on_config(config: Any) -> None:
    config.copyright = f"django-leasequeue {version('django-leasequeue')}"
    if os.environ.get("DOCS_VERSION"):  # beside other versions, which versions.json one folder up names
        config.extra["version"] = {"provider": "mike"}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    path = page.file.src_uri
    if path in ("changelog.md", "security.md"):
        source = Path(__file__).parents[1] / f"{path.removesuffix('.md').upper()}.md"
        markdown = source.read_text(encoding="utf-8").replace("](docs/", "](")
        markdown = markdown.replace("](CHANGELOG.md", "](changelog.md")
    if path.startswith(("README", "reference/api/")) or path == "changelog.md" or "/decisions/" in path:
        page.meta["search"] = {"boost": 0.3}
    return re.sub(r"^(```[a-z]+) (?:(?:file|append)=(\S+)(?:\n# \2$)?|.*$)", _shown, markdown, flags=re.MULTILINE)


def _shown(match: re.Match[str]) -> str:
    """Return the first line of a block, with its file as title in place of the comment that GitHub shows."""
    return f'{match[1]} title="{match[2]}"' if match[2] else match[1]


def on_post_build(config: Any) -> None:
    """Add the words to the index; end the build where a search does not find its page first."""
    path = Path(config.site_dir) / "search/search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    for document in index["docs"]:
        if words := WORDS.get(document["location"].removesuffix(".html")):
            document["tags"] = words.split()
    text = json.dumps(index, sort_keys=True, separators=(",", ":"))
    path.write_text(text, encoding="utf-8")
    script = path.with_suffix(".js")
    if script.exists():
        script.write_text(f"var __index = {text}", encoding="utf-8")
    from mkdocs.exceptions import PluginError

    find = searcher(index["docs"])
    wrong = {word: found for word, page in ANSWERS.items() if (found := find(word)) != f"{page}.html"}
    if wrong:
        raise PluginError(f"Searches that find another page first: {wrong}")


def searcher(documents: list[dict[str, Any]]) -> Any:
    """Return a search as the site's own: no stems, the beginning of a word is enough, titles and tags count most."""
    from lunr.builder import Builder
    from lunr.pipeline import Pipeline
    from lunr.query import Query, QueryPresence
    from lunr.stop_word_filter import stop_word_filter

    builder = Builder()
    builder.ref("location")
    builder.field("title", boost=1000)
    builder.field("text")
    builder.field("tags", boost=1_000_000)
    builder.pipeline = Pipeline()
    builder.pipeline.add(stop_word_filter)
    for document in documents:
        told = {"tags": "", **document}
        told["tags"] = " ".join(told["tags"])
        builder.add(told, {"boost": document.get("boost", 1)})
    index = builder.build()

    def find(words: str) -> str:
        query = index.create_query()
        for word in words.split():
            query.term(word, presence=QueryPresence.REQUIRED, wildcard=Query.WILDCARD_TRAILING)
        found = index.query(query)
        return found[0]["ref"].split("#")[0] if found else ""

    return find
