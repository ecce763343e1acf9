import pytest


@pytest.fixture
def queue(db: None) -> int:
    """A queue named ``work`` with the default options."""
    from tests.engine.helpers import make

    return make("work")
