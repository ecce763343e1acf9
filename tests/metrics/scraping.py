"""Reading what Prometheus would read."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: Any) -> float | None:
    """Return the value of one sample; ``None`` if it is not there. Without a project it is that of no tenant."""
    if "queue" in labels:
        labels.setdefault("project", "")
    return found.get((name, frozenset((key, str(label)) for key, label in labels.items())))
