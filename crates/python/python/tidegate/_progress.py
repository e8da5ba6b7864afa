"""Progress of a run: a bar of tqdm in a terminal or notebook, or a function of one's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple


class Progress(NamedTuple):
    """How far a run is."""

    read: int
    written: int
    rejected: int
    done: int
    #: Records in the source; 0 if unknown.
    total: int
    #: The progress in words, such as "waiting 12 s: requested by the server".
    message: str


def _notebook() -> bool:
    shell = sys.modules.get("IPython")
    here = shell.get_ipython() if shell is not None else None
    return here is not None and type(here).__name__ == "ZMQInteractiveShell"


class Shown:
    """Shows progress until the run ends. ``wanted``: yes, no, or None to decide by the terminal."""

    def __init__(self, wanted: bool | None, on_progress: Callable[[Progress], object] | None) -> None:
        self._on_progress = on_progress
        self._last: Progress | None = None
        self._bar: Any = None
        if wanted is None:
            wanted = on_progress is None and (_notebook() or sys.stderr is not None and sys.stderr.isatty())
        if wanted:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                self._bar = _Line()
            else:
                self._bar = tqdm(total=None, unit=" records", leave=False, dynamic_ncols=True)

    def __enter__(self) -> Shown:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, state: Mapping[str, Any] | None) -> None:
        """Show this, if it differs from what is shown."""
        if state is None:
            return
        now = Progress(**state)
        if now == self._last:
            return
        self._last = now
        if self._on_progress is not None:
            self._on_progress(now)
        if self._bar is not None:
            self._bar.total = now.total or None
            self._bar.n = now.done
            self._bar.set_postfix_str(now.message)


class _Line:
    """A line on standard error, where tqdm is not installed."""

    total: int | None = None
    n: int = 0

    def set_postfix_str(self, message: str) -> None:
        print(f"\r\x1b[K{message[:100]}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
