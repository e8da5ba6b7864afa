"""Every Python block of the pages on Prefect and Dagster, page by page, as in ../test_docs.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[4] / "docs" / "python"
BLOCK = re.compile(r"^```([a-z]+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(page: str, folder: Path, **environment: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    lines: list[str] = []
    for block in BLOCK.finditer(text):
        language, name, code = block.groups()
        if name:
            (folder / name).write_text(code)
        elif language == "python":
            # Line numbers as on the page.
            lines += [""] * (text.count("\n", 0, block.start()) + 1 - len(lines))
            lines += code.splitlines()
    assert lines
    script = folder / f"{page}_page.py"
    script.write_text("\n".join(lines) + "\n")
    words = [sys.executable, str(script)]
    given = {**os.environ, **environment}
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=220)
    assert done.returncode == 0, f"{page}\n{done.stdout}\n{done.stderr}"


@pytest.mark.timeout(480)
def test_dagster(tmp_path):
    run("dagster", tmp_path)


@pytest.mark.timeout(480)
@pytest.mark.usefixtures("prefect_server")
def test_prefect(tmp_path):
    from prefect.settings import PREFECT_API_URL

    run("prefect", tmp_path, PREFECT_API_URL=PREFECT_API_URL.value())
