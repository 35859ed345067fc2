"""Words of the format are their spellings."""

from __future__ import annotations

from lakebed.model.words import Action, State


def test_a_word_is_found_by_its_spelling() -> None:
    assert Action.DELTA_COMMIT == "deltacommit"
    assert "deltacommit" in {Action.DELTA_COMMIT}
    assert {"inflight": 1}[State.INFLIGHT] == 1
