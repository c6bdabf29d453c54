"""Columns with names: what results are given as."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np


class Frame(dict[str, Any]):
    """Named columns of equal length: ``pandas.DataFrame(frame)`` and ``polars.DataFrame(frame)`` take it as it is."""

    def to_pandas(self) -> Any:
        """The same as a pandas data frame."""
        import pandas

        return pandas.DataFrame(dict(self))

    def __len__(self) -> int:
        return dict.__len__(self)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.values()))) if self else 0

    def _repr_html_(self) -> str:
        shown = min(self.rows, 20)
        head = "".join(f"<th>{escape(name)}</th>" for name in self)
        cells = ["".join(f"<td>{escape(shown_value(column[i]))}</td>" for column in self.values()) for i in range(shown)]
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        more = f"<p>{self.rows} rows</p>" if shown < self.rows else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def shown_value(value: Any) -> str:
    """A cell as people read it."""
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{value:.5g}"
    return str(value)
