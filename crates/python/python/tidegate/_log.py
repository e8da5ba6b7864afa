"""Gives the events of the engine to ``logging``: a thread empties the queue of the native module."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading

from tidegate import _core

_thread: threading.Thread | None = None
#: Loggers of single calls. Where logging is not set up they stay silent, as on the command line: what a
#: call returns or raises says it.
_SINGLE = frozenset({"tidegate.call", "tidegate.sink"})


def _read() -> None:
    root = logging.getLogger("tidegate")
    while True:
        taken = _core._log_take(min(root.getEffectiveLevel(), 255))
        if taken is None:
            return
        events, dropped = taken
        for name, level, line in events:
            logger = logging.getLogger(name)
            if logger.isEnabledFor(level) and (name not in _SINGLE or logger.hasHandlers()):
                # A handler that fails must not end the reader.
                with contextlib.suppress(Exception):
                    logger.log(level, "%s", line)
        if dropped:
            root.warning("%d log events were dropped: the queue was full", dropped)


def _start() -> None:
    global _thread
    _thread = threading.Thread(target=_read, name="tidegate-log", daemon=True)
    _thread.start()


def _end() -> None:
    _core._leave_lanes()
    _core._log_close()
    if _thread is not None:
        _thread.join(timeout=1.0)


_core._log_start()
_start()
atexit.register(_end)
if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork.
    os.register_at_fork(after_in_child=_start)
