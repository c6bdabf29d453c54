"""Tables in any of the usual forms, as the native module takes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np

from . import _native
from ._errors import DataError

#: A file, or a table in memory.
Rows = Union[str, "os.PathLike[str]", _native.Table]


def table(data: Any, names: Optional[Sequence[str]] = None) -> _native.Table:
    """A table from pandas, polars, Arrow, NumPy or a dictionary of columns. `names` are the columns that are wanted: others need not be numbers or
    text. They are the names of an array without any."""
    if isinstance(data, _native.Table):
        return data
    if _is_pandas(data):
        found = [str(name) for name in data.columns]
        return _of_columns(_wanted(((name, data.iloc[:, i]) for i, name in enumerate(found)), found, names, len(data)))
    if (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")) and not _is_column(data):
        return _native.Table.from_arrow(data, None if names is None else list(names))
    if isinstance(data, Mapping):
        found = [str(name) for name in data]
        count = next((len(values) for values in data.values() if hasattr(values, "__len__")), 0)
        return _of_columns(_wanted(((str(name), values) for name, values in data.items()), found, names, count))
    if isinstance(data, np.ndarray):
        return _of_array(data, names)
    if isinstance(data, (list, tuple)) and data:
        return _of_array(np.asarray(data), names)
    raise TypeError(
        f"a table is a pandas or polars data frame, an Arrow table, a NumPy array or a dictionary of columns, not {type(data).__name__}"
    )


def rows(data: Any, names: Optional[Sequence[str]] = None) -> Rows:
    """A path as it is, everything else as a table."""
    return data if isinstance(data, (str, os.PathLike)) else table(data, names)


def is_table(data: Any) -> bool:
    """Whether this is a table, as against a column or a dictionary of the parties' tables."""
    if isinstance(data, (str, os.PathLike, _native.Table)) or _is_pandas(data):
        return True
    if isinstance(data, np.ndarray):
        return data.ndim == 2 or data.dtype.names is not None
    if isinstance(data, Mapping):
        return not any(is_table(value) for value in data.values())
    # A column of polars or pyarrow speaks Arrow too; only tables have named columns.
    return hasattr(data, "__arrow_c_stream__") and any(hasattr(data, name) for name in ("column_names", "columns", "schema"))


def is_parties(data: Any) -> bool:
    """Whether this is a dictionary with a table for each party."""
    return isinstance(data, Mapping) and bool(data) and all(is_table(value) for value in data.values())


def labels(groups: Any, count: int) -> list[str]:
    """The party of every row."""
    values = _array(groups)
    if values.ndim != 1:
        raise ValueError(f"groups must be a 1d array, got an array of shape {values.shape} instead")
    if len(values) != count:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[count, len(values)]}")
    names = [value.decode() if isinstance(value, bytes) else str(value) for value in values]
    gone = [i for i, value in enumerate(values) if _is_gone(value) or not names[i].strip()]
    if gone:
        raise DataError(f"groups: row {gone[0] + 1}: is empty; it must name the client")
    return names


def column(name: str, values: Any) -> Any:
    """A column as 64-bit floats, without a copy where it is such a column already, or as a list of words."""
    if isinstance(values, np.ma.MaskedArray):
        # What is masked is missing, whatever is stored there.
        if values.dtype.kind in "fiub":
            return np.ma.filled(values.astype(np.float64), np.nan)
        words = np.array(values.data, dtype=object)
        words[np.ma.getmaskarray(values)] = None
        values = words
    kind = str(getattr(values, "dtype", ""))
    if kind == "category":
        array = np.asarray(values, dtype=object)
    elif hasattr(values, "to_numpy"):  # pandas, polars and Arrow
        if kind[:1].isupper() and kind.startswith(("Int", "UInt", "Float", "boolean", "Boolean")) and hasattr(values, "isna"):
            return values.to_numpy(dtype=np.float64, na_value=np.nan)
        array = _array(values)
    else:
        array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f'column "{name}" should be a 1d array, got an array of shape {array.shape} instead')
    if array.dtype.kind in "fiub":
        return np.ascontiguousarray(array, dtype=np.float64)
    if array.dtype.kind in "OUT":
        return _words(name, array)
    if array.dtype.kind == "c":
        raise ValueError(f'column "{name}": Complex data not supported')
    raise TypeError(f'column "{name}" holds {array.dtype}, which is neither a number nor text')


def _words(name: str, array: Any) -> Any:
    """Of objects: words, or numbers if all are."""
    values = array.tolist()
    gone = [_is_gone(value) for value in values]
    there = [value for value, is_gone in zip(values, gone) if not is_gone]
    if all(isinstance(value, str) for value in there):
        return [None if is_gone else value for value, is_gone in zip(values, gone)]
    if all(isinstance(value, (bool, int, float, np.number)) for value in there):
        return np.array([np.nan if is_gone else float(value) for value, is_gone in zip(values, gone)])
    wrong = next(value for value in there if not isinstance(value, str))
    raise TypeError(f'column "{name}" holds objects such as {type(wrong).__name__}; make it a column of numbers or of text')


def _array(values: Any) -> Any:
    """An array of NumPy."""
    if type(values).__module__.split(".")[0] == "pyarrow":
        return values.to_numpy() if hasattr(values, "num_chunks") else values.to_numpy(zero_copy_only=False)
    return values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)


def _is_gone(value: Any) -> bool:
    """Whether a cell is missing. That of pandas has no truth value, so it is looked at first."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _is_column(data: Any) -> bool:
    """Whether something that speaks Arrow is a column and no table."""
    return not any(hasattr(data, name) for name in ("column_names", "columns", "schema")) and (hasattr(data, "type") or hasattr(data, "dtype"))


def _wanted(columns: Any, found: Sequence[str], names: Optional[Sequence[str]], count: int) -> Any:
    """The columns that are read. Where a wanted one is missing, the others are there without being read, so that the message can list them."""
    for name, values in columns:
        if names is None or name in names:
            yield name, column(name, values)
        elif not set(names) <= set(found):
            yield name, np.full(count, np.nan)


def _of_columns(columns: Any) -> _native.Table:
    return _native.Table.from_columns(list(columns))


def _of_array(array: Any, names: Optional[Sequence[str]]) -> _native.Table:
    if array.dtype.names is not None:
        return _of_columns((name, column(name, array[name])) for name in array.dtype.names)
    if array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead")
    if names is None or len(names) != array.shape[1]:
        wanted = "" if names is None else f"; the study has {len(names)} columns, {', '.join(names)}"
        raise ValueError(f"the columns of an array have no names{wanted}: got {array.shape[1]}. Give a data frame or a dictionary of columns")
    return _of_columns((name, column(name, array[:, i])) for i, name in enumerate(names))


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "iloc") and getattr(data, "ndim", 0) == 2
