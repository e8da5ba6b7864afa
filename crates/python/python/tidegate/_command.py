"""The program ``tidegate``: the same as the binary."""

from __future__ import annotations

import os
import shutil
import signal
import sys


def main() -> None:
    """Run the command with the arguments of this process, and exit with its code."""
    # Python would only note Ctrl-C and wait for the command to come back.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tidegate import _core

    first = sys.argv[0]
    program = first if os.access(first, os.X_OK) else shutil.which("tidegate")
    code = _core.main(["tidegate", *sys.argv[1:]], program)
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    main()
