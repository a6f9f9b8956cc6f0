"""The files that commands of the pages are given: some good, most of them broken."""

from __future__ import annotations

from pathlib import Path

KERNELS = '''\
"""Two kernels."""

import tilesmith
import tilesmith.language as hl
import torch


@tilesmith.kernel
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@tilesmith.kernel
def row_sum(x):
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(1)
    return out


def three_tensors():
    return torch.ones(4), torch.ones(4), torch.ones(4)


def nothing():
    pass


ROWS = 4

if __name__ == "__main__":
    print(add(torch.ones(4), torch.ones(4)))
'''
BROKEN_KERNEL = '''\
"""A kernel that cannot be compiled."""

import tilesmith
import tilesmith.language as hl
import torch


@tilesmith.kernel
def copy(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tiles]
    return out
'''
TEXTS = {
    "kernels.py": KERNELS,
    "broken_kernel.py": BROKEN_KERNEL,
    "syntax_error.py": "import tilesmith\n\ndef add(x, y:\n    return x + y\n",
    "raises.py": 'raise RuntimeError("no such device: tpu")\n',
    "exits.py": "import sys\n\nsys.exit(3)\n",
    "imports_nothing.py": "import no_such_library\n",
    "no_kernel.py": "def add(x, y):\n    return x + y\n",
    "damaged.json": '{"block_sizes": [64, ',
    "list.json": "[1, 2, 3]\n",
    "empty.json": "",
    "config.json": '{"block_sizes": [64], "num_warps": 4}\n',
    "damaged.jsonl": '{"operator": "gemm", "latency_ms": 0.1\n',
    "notes.txt": "Buy milk.\n",
    "shapes.txt": "randn(4), randn(4)\nrandn(4), randn(\n",
    "empty.txt": "",
}
BYTES = {
    "latin1.py": '"""Größe der Kacheln."""\n\nimport tilesmith\n'.encode("latin-1"),
    "nul.py": b"import tilesmith\n\0\n",
    "binary.json": bytes(range(128, 256)),
    "binary.jsonl": b"\xff\xfe\x00\x01",
}


def write_files(folder: Path) -> None:
    """Write all of them into a folder."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, content in BYTES.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
