"""Writing a study as TOML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def dumps(tables: Mapping[str, Any]) -> str:
    """The TOML of nested dictionaries; keys whose value is None are left out."""
    plain = {key: value for key, value in tables.items() if value is not None and not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in tables.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{_key(key)}]"]
            lines += [f"{_key(name)} = {_value(item)}" for name, item in value.items() if item is not None]
    return "\n".join(lines) + "\n"


def assignment(key: str, value: Any) -> str:
    """One key=value, as for the program's --set."""
    return f"{key}={_value(value)}"


def _key(key: object) -> str:
    text = str(key)
    plain = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if plain else _text(text)


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'


def _value(value: Any) -> str:
    if hasattr(value, "tolist") and not isinstance(value, (str, bytes)):
        value = value.tolist()  # numbers and arrays of NumPy
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"a study holds numbers, text, lists and tables, not {type(value).__name__}")
