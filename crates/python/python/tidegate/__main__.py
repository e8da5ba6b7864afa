"""``python -m tidegate``: the program ``tidegate``."""

from tidegate._command import main

main()
