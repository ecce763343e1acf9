import pytest


@pytest.fixture
def queue(db: None) -> int:
    from tests.engine.helpers import make

    return make("work")
