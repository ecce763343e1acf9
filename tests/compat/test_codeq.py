"""codeQ's queue by the preset ``codeq``: its page runs. The rules of the preset are those of the engine's tests."""

import pytest

from tests.support.pages import run_page


@pytest.mark.django_db
def test_the_page_about_moving_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_page("how-to/move-from-codeq.md", monkeypatch)
    assert (names["again"].status, names["again"].seq) == ("duplicate", names["receipt"].seq)
    assert [names["video"].tag, names["mail"].tag] == ["RENDER_VIDEO", "SEND_MAIL"]
    assert (names["finished"].state, names["result"]) == ("completed", {"url": "/videos/j-1"})
    assert names["back"].state == "delayed"
