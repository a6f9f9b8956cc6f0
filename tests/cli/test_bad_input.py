"""Mistakes of those who ship kernels, each with the whole text of its error."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilesmith.cli.main import app

EXPORT = ["export", "examples.softmax:softmax", "-o", "p"]
TUNE = ["tune", "examples.softmax:softmax"]
ARGS = ["--args", "randn(4, 9)"]
CUDA = (
    "cuda:75, cuda:80, cuda:86, cuda:87, cuda:88, cuda:89, cuda:90, cuda:100, cuda:101, cuda:103, "
    "cuda:110, cuda:120, cuda:121"
)
TARGETS = (
    f"expected cpu, {CUDA}, hip:gfx908, hip:gfx90a, hip:gfx942, hip:gfx950, hip:gfx1030, "
    "hip:gfx1100, hip:gfx1101, hip:gfx1102, hip:gfx1150, hip:gfx1151, hip:gfx1200, hip:gfx1201, "
    "cpu:avx512, cpu:avx2, cpu:sse, cpu:neon"
)
LINE_3 = (
    "wrong.txt, line 3: unknown name 'nine'; known: bf16, f16, fp16, f32, fp32, f64, fp64, fp8, "
    "e4m3, e5m2, i8, i16, i32, i64, u8, inf, nan, bool, randn, rand, zeros, ones, full, empty, "
    "randint, arange, transposed\n  randn(4, nine)\n           ^^^^"
)
MISTAKES = [
    ([*EXPORT, *ARGS, "--target", "riscv"], 2, f"--target: unknown target 'riscv': {TARGETS}"),
    (
        [*EXPORT, *ARGS, "--target", "cuda:ninety"],
        2,
        f"--target: unknown target 'cuda:ninety': expected cpu, {CUDA}",
    ),
    (
        [*EXPORT, *ARGS, "--target", "cpu:neon"],
        1,
        "kernel `softmax` cannot be exported: cpu:neon: there is no linker for it\n"
        "    = fix: export on such a machine",
    ),
    ([*EXPORT, "--shapes", "wrong.txt"], 2, LINE_3),
    ([*TUNE, "--on", "local", "--shapes", "wrong.txt"], 2, LINE_3),
    (
        [*TUNE, *ARGS, "--on", "ray://127.0.0.1:1"],
        1,
        "no Ray cluster answers at ray://127.0.0.1:1: Connection refused",
    ),
    (
        [*TUNE, *ARGS, "--on", "somewhere"],
        1,
        "'somewhere' is no address of Ray: expected ray://host:port or host:port",
    ),
    (
        [*TUNE, *ARGS, "--on", "local:none"],
        1,
        "--on local:none: expected local, or local:N with N from 1 to 64",
    ),
    (
        [*TUNE, "--shapes", "wrong.txt"],
        2,
        "--shapes needs --on; `tilesmith dispatch` decides between shapes",
    ),
    (
        [*TUNE, *ARGS, "--on", "local", "--report", "x"],
        2,
        "--report is of one search on this machine; leave out --on",
    ),
]


@pytest.mark.parametrize(("words", "code", "text"), MISTAKES, ids=[m[2][:24] for m in MISTAKES])
def test_the_text_says_what_is_wrong(
    words: list[str], code: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "ray://127.0.0.1:1" in words or "somewhere" in words:
        pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    Path("wrong.txt").write_text("randn(4, 9)\n\nrandn(4, nine)\n")
    ended = CliRunner().invoke(app, words)
    assert (ended.exit_code, ended.stderr) == (code, f"error: {text}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.txt"]
