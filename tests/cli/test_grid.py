from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lakebed.cli.grid import Grid, GridColumn, fit_columns, grid, layout

WORDS = ("requested", "size", "why")
COLUMNS = (
    GridColumn("requested", style="cyan"),
    GridColumn("size", rank=2, align="right"),
    GridColumn("why", rank=1, fit="wrap"),
)


def _lines(shown: Grid, widths: tuple[int, ...] | None = None) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in layout(shown, widths)]


def test_columns_are_aligned_and_whole() -> None:
    shown = grid(COLUMNS, [("20261116000129585", "2 B", "x" * 200), ("-", "12 B", "")])
    assert _lines(shown) == [
        "requested          size  why",
        f"20261116000129585   2 B  {'x' * 200}",
        "-                  12 B",
    ]


def test_a_grid_of_no_rows_is_its_header() -> None:
    assert _lines(grid(COLUMNS, [])) == ["requested  size  why"]


def test_cells_cannot_break_out_of_their_line() -> None:
    assert _lines(grid((GridColumn("a"),), [("x\n\x1b[2J",)])) == ["a", r"x\n\x1b[2J"]


def test_wide_characters_count_twice() -> None:
    assert _lines(grid((GridColumn("a"), GridColumn("b")), [("日本", "x"), ("y", "z")])) == [
        "a     b",
        "日本  x",
        "y     z",
    ]


def test_styles_are_by_column_and_by_cell() -> None:
    shown = grid((GridColumn("state", style="dim", styles={"done": "green"}),), [("done",), ("open",)])
    assert [line[0] for line in layout(shown)] == [("state", "bold"), ("done ", "green"), ("open ", "dim")]


def test_a_narrow_terminal_leaves_out_the_highest_rank_first() -> None:
    shown = grid(COLUMNS, [("20261116000129585", "2 B", "no")])
    assert fit_columns(shown, 80)[2] == ()
    assert fit_columns(shown, 25)[2] == ("size",)
    assert fit_columns(shown, 18)[2] == ("size", "why")
    assert fit_columns(shown, 3)[0].columns == COLUMNS[:1]


def test_what_is_left_is_wrapped_between_words_or_shortened() -> None:
    columns = (GridColumn("key"), GridColumn("name", fit="shorten"), GridColumn("why", fit="wrap"))
    shown = grid(columns, [("k1", "a" * 30, "the filter has no equality on the record key")])
    fitted, widths, left_out = fit_columns(shown, 36)
    assert left_out == ()
    assert _lines(fitted, widths) == [
        "key  name            why",
        "k1   aaaaaaaaaaaaa…  the filter has",
        "                     no equality on",
        "                     the record key",
    ]


@given(
    st.lists(st.tuples(*(st.text(max_size=40),) * 3), max_size=4),
    st.integers(min_value=60, max_value=140),
)
def test_lines_fit_the_width(rows: list[tuple[str, ...]], width: int) -> None:
    columns = tuple(GridColumn(word, fit=fit) for word, fit in zip(WORDS, ("shorten", "wrap", "shorten"), strict=True))
    fitted, widths, _ = fit_columns(grid(columns, rows), width)
    assert all(cell_len(line) <= width for line in _lines(fitted, widths))
