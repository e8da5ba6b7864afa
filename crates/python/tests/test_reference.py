"""The reference is what the sources say."""

import subprocess
import sys
from pathlib import Path


def test_the_reference_is_current():
    tool = Path(__file__).resolve().parent.parent / "tools" / "reference"
    told = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
