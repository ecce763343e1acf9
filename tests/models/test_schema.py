"""What migrations hold of the models."""

from django.db.migrations.state import ModelState

from django_leasequeue.models import ApiKey, Queue
from testproject.demo.models import SourceReport


def test_words_and_what_only_python_reads_need_no_migration() -> None:
    state = ModelState.from_model(ApiKey)
    assert "verbose_name" not in state.options
    assert state.fields["name"].deconstruct()[3] == {"max_length": 128}
    assert state.fields["scopes"].base_field.deconstruct()[3] == {"max_length": 16}
    assert ModelState.from_model(Queue).fields["concurrency"].deconstruct()[3] == {"db_default": 0}


def test_models_keep_their_words() -> None:
    assert ApiKey._meta.verbose_name == "API key"
    assert ApiKey._meta.get_field("name").help_text
    assert Queue._meta.get_field("type").choices


def test_models_of_hosts_are_left_alone() -> None:
    assert ModelState.from_model(SourceReport).fields["size"].help_text == "bytes"
