"""Grids of text: untruncated for a pipe, or fitted to the width of a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Literal, TypeAlias

from rich.cells import cell_len, chop_cells, set_cell_size

from lakebed.cli.words import printable

_GAP = "  "
_SHORTEST = 12
_HEADER_STYLE = "bold"

Span: TypeAlias = tuple[str, str]
"""Text and its style."""


@dataclass(frozen=True, slots=True)
class GridColumn:
    """How one column is shown.

    On a narrow terminal, columns with the highest `rank` are left out first. `fit` says whether cells stay whole, are
    shortened, or wrap. `styles` maps the text of a cell to its style; `style` is for all other cells.
    """

    header: str
    rank: int = 0
    align: Literal["left", "right"] = "left"
    fit: Literal["whole", "shorten", "wrap"] = "whole"
    style: str = ""
    styles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of text cells. Lists of names and values have no header."""

    columns: tuple[GridColumn, ...]
    rows: Sequence[tuple[str, ...]]
    has_header: bool = True

    def widths(self) -> tuple[int, ...]:
        """The width of each column, in terminal cells, when nothing is cut."""
        headers = [column.header if self.has_header else "" for column in self.columns]
        return tuple(max(map(cell_len, cells)) for cells in zip(headers, *self.rows, strict=True))


def grid(columns: Sequence[GridColumn], rows: Sequence[Sequence[str]], *, has_header: bool = True) -> Grid:
    """A grid of single-line cells; control characters are escaped."""
    return Grid(tuple(columns), [tuple(map(printable, row)) for row in rows], has_header)


def layout(shown: Grid, widths: Sequence[int] | None = None) -> Iterator[tuple[Span, ...]]:
    """The lines of a grid as styled text; cells wider than `widths` are cut or wrapped."""
    widths = widths or shown.widths()
    if shown.has_header:
        header = tuple(column.header for column in shown.columns)
        plain = tuple(replace(column, style=_HEADER_STYLE, styles={}) for column in shown.columns)
        yield from _row_lines(header, plain, widths)
    for row in shown.rows:
        yield from _row_lines(row, shown.columns, widths)


def fit_columns(shown: Grid, width: int) -> tuple[Grid, tuple[int, ...], tuple[str, ...]]:
    """The grid with the columns that fit into `width`, their widths, and the headers of the columns left out."""
    natural = shown.widths()
    least = [_least(column, own) for column, own in zip(shown.columns, natural, strict=True)]
    kept = list(range(len(shown.columns)))
    while len(kept) > 1 and _total([least[i] for i in kept]) > width:
        kept.remove(max(kept, key=lambda i: (shown.columns[i].rank, i)))
    left_out = tuple(column.header for i, column in enumerate(shown.columns) if i not in kept)
    fitted = Grid(
        tuple(shown.columns[i] for i in kept), [tuple(row[i] for i in kept) for row in shown.rows], shown.has_header
    )
    return fitted, _share(width, [natural[i] for i in kept], [least[i] for i in kept]), left_out


def _share(width: int, natural: list[int], least: list[int]) -> tuple[int, ...]:
    """Widths that fit: the widest column that may shrink is narrowed first."""
    widths = [max(low, min(own, width)) for own, low in zip(natural, least, strict=True)]
    while _total(widths) > width and widths != least:
        widest = max((i for i, low in enumerate(least) if widths[i] > low), key=lambda i: widths[i])
        widths[widest] -= 1
    return tuple(widths)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _least(column: GridColumn, natural: int) -> int:
    return natural if column.fit == "whole" else min(natural, max(_SHORTEST, cell_len(column.header)))


def _row_lines(row: Sequence[str], columns: Sequence[GridColumn], widths: Sequence[int]) -> Iterator[tuple[Span, ...]]:
    cells = [_fit(cell, column, width) for cell, column, width in zip(row, columns, widths, strict=True)]
    for parts in zip_longest(*cells, fillvalue=""):
        spans: list[Span] = []
        for part, cell, column, width in zip(parts, row, columns, widths, strict=True):
            spans += ((_GAP, ""),) if spans else ()
            spans.append((_pad(part, column, width), column.styles.get(cell, column.style)))
        yield tuple(spans)


def _fit(cell: str, column: GridColumn, width: int) -> list[str]:
    if cell_len(cell) <= width:
        return [cell]
    if column.fit != "wrap":
        return [set_cell_size(cell, width - 1) + "…"]
    return [part for line in textwrap.wrap(cell, width, break_on_hyphens=False) for part in chop_cells(line, width)]


def _pad(text: str, column: GridColumn, width: int) -> str:
    space = " " * (width - cell_len(text))
    return space + text if column.align == "right" else text + space
