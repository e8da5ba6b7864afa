"""The notebooks of examples/notebooks run from their first cell to their last."""

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[3] / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
    assert all(path.stat().st_size < 100_000 for path in NOTEBOOKS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
