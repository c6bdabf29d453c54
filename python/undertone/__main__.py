"""The program ``undertone``, also as ``python -m undertone``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Optional

from . import _native


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the program and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return _native.run_program(["undertone", *words], [sys.executable, "-m", "undertone"])


def program() -> None:
    """The program as a process: an interrupt ends it as it ends any program; a peer has its own way with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())


if __name__ == "__main__":
    program()
