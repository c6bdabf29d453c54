"""Runs a notebook from top to bottom, in the current folder, with the interpreter that runs this."""

import sys

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
kernel = KernelManager()
kernel.kernel_spec.argv[0] = sys.executable
NotebookClient(notebook, km=kernel, timeout=300).execute(cwd=".")
cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
outputs = [output for cell in cells for output in cell.outputs]
assert any("image/png" in output.get("data", {}) for output in outputs), "the notebook shows no plot"
print(f"{sys.argv[1]}: {len(cells)} cells")
