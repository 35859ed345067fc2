from __future__ import annotations

import pytest

from interop.histories import INDEXES, LAST_STEPS, LOG_STEPS, STEPS, VALUE_TYPES, histories, split_fields


def test_a_seed_gives_the_same_histories_again() -> None:
    assert list(histories(7, 5)) == list(histories(7, 5))
    assert list(histories(7, 5)) != list(histories(8, 5))


@pytest.mark.parametrize("seed", range(5))
def test_a_dozen_tables_see_nearly_everything(seed: int) -> None:
    tables = list(histories(seed, 12))
    designs = [design for design, _ in tables]
    assert {design.version for design in designs} == {6, 8, 9}
    assert {design.mor for design in designs} == {True, False}
    assert len({design.indexes for design in designs}) >= len(INDEXES) - 2
    assert {column.type for _, steps in tables for step in steps for column in step.columns} >= set(VALUE_TYPES)
    kinds = {*STEPS, *LOG_STEPS, *LAST_STEPS}
    assert len({step.action for _, steps in tables for step in steps} & kinds) >= len(kinds) - 3


def test_rows_fit_their_columns() -> None:
    for _, steps in histories(1, 12):
        assert {len(row) - len(step.columns) for step in steps for row in step.rows} == {0}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("x:int,y:string", ["x:int", "y:string"]),
        ("a:struct<b:decimal(6,3),c:int>,d:int", ["a:struct<b:decimal(6,3),c:int>", "d:int"]),
    ],
)
def test_struct_fields_are_split_at_their_own_level(text: str, fields: list[str]) -> None:
    assert split_fields(text) == fields
