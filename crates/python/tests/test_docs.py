"""Every Python block of docs/python/*.md, page by page.

The blocks of a page run in order, in one namespace and in a directory of their own. The first `tidegate chaos`
of the page is started with its options, and its address takes the place of the one on the page. A block with a
file name after its language, such as ``yaml parcels.yaml``, is written to that file.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs" / "python"
# The reference holds signatures; test_reference.py compares it with the sources. The pages on
# orchestrators need them installed: flow/test_pages.py runs those.
ELSEWHERE = {"reference", "prefect", "dagster"}
PAGES = [page for page in sorted(DOCS.glob("*.md")) if page.stem not in ELSEWHERE]
BLOCK = re.compile(r"^```([a-z]+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVER = re.compile(r"^\$ tidegate chaos (.*)$", re.MULTILINE)
ADDRESS = "127.0.0.1:8080"


def test_there_are_pages():
    assert PAGES


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page, chaos_server, tmp_path):
    text = page.read_text()
    address = ADDRESS
    if found := SERVER.search(text):
        options = shlex.split(found[1].removesuffix("&"))
        if "--addr" in options:
            at = options.index("--addr")
            del options[at : at + 2]
        address = chaos_server(*options).url.removeprefix("http://")
    lines: list[str] = []
    for block in BLOCK.finditer(text):
        language, name, code = block.groups()
        if name:
            (tmp_path / name).write_text(code.replace(ADDRESS, address))
        elif language == "python":
            # Line numbers as on the page.
            lines += [""] * (text.count("\n", 0, block.start()) + 1 - len(lines))
            lines += code.replace(ADDRESS, address).splitlines()
    assert lines, f"{page.name} has no Python block"
    script = tmp_path / f"{page.stem}_page.py"
    script.write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{page.name}\n{done.stdout}\n{done.stderr}"
