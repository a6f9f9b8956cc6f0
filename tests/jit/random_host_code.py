"""Random host code, and whether recognised calls of it give what torch does."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch

NAMES = ("x", "y", *"abcdefg")
EXPRESSIONS = (
    *["{0}"] * 4, *["torch.{kind}_like({0})"] * 3, "torch.{kind}([x.numel()], dtype=x.dtype)",
    "{0}.view(-1)", "{0}.view(-1, 2)", "{0}.reshape(x.size(0), -1)",
)  # fmt: skip
RESULTS = (
    "{0}", "out", "out.view(-1)", "out.view({0}.size())", "out.size(0)", "{0}.view(-1)",
    "{0}.view(torch.int32)",
)  # fmt: skip
TEMPLATE = """
@tilesmith.kernel{settings}
def kernel(x, y, count):
{host}
    for tile in hl.tile({sizes}):
        out[tile] = {left}[tile] * 2 + {right}[tile] - count
    return {results}

def reference(x, y, count):
{host}
    out.copy_({left} * 2 + {right} - count)
    return {results}
"""
HEAD = "import torch, tilesmith\nimport tilesmith.language as hl\n"


class Program:
    """Host code, statement after statement; those that torch refuses are left out."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scope: dict[str, Any] = {"torch": torch, "count": 3}
        self.scope |= {"x": torch.zeros(4, 6), "y": torch.zeros(4, 6)}
        self.lines: list[str] = []

    @property
    def names(self) -> list[str]:
        return [name for name in (*NAMES, "out") if name in self.scope]

    def pick(self, templates: tuple[str, ...]) -> str:
        kind = self.random.choice(["empty", "zeros", "ones"])
        return self.random.choice(templates).format(self.random.choice(self.names), kind=kind)

    def statement(self) -> str:
        first, second = self.random.sample(NAMES, 2)
        given = self.random.sample(self.names, 2)
        both = f"{first}, {second} = "
        return self.random.choice(
            [
                f"{first} = {self.pick(EXPRESSIONS)}",
                f"{given[0]}, {given[1]} = {given[1]}, {given[0]}",
                f"{both}{self.pick(EXPRESSIONS)}, {self.pick(EXPRESSIONS)}",
                f"{both}torch.broadcast_tensors({given[0]}, {given[1]})",
                f"{both}(t.view(-1) for t in ({given[0]}, {given[1]}))",
            ]
        )

    def add(self, line: str) -> None:
        scope = dict(self.scope)
        try:
            exec(line, scope)
        except (NameError, RuntimeError):
            return
        self.scope = scope
        self.lines.append(line)

    def results(self) -> Iterator[str]:
        yield "out"
        while self.random.random() < 0.5:
            found = self.pick(RESULTS)
            try:
                eval(found, dict(self.scope))
            except RuntimeError:
                continue
            yield found

    def text(self) -> str:
        is_dynamic = self.random.random() < 0.2
        if is_dynamic:
            self.lines.append("hl.specialize(x.size(1))")
        for _ in range(self.random.randint(2, 6)):
            self.add(self.statement())
        self.add(f"out = torch.empty_like({self.random.choice(self.names)})")
        shape = self.scope["out"].shape
        others = [n for n in self.names if n != "out" and self.scope[n].shape == shape]
        left, right = self.random.choices(others, k=2)
        results = list(self.results())
        self.random.shuffle(results)
        return HEAD + TEMPLATE.format(
            settings="(static_shapes=False)" if is_dynamic else "",
            host="\n".join(f"    {line}" for line in self.lines),
            sizes="out.size()" if len(shape) > 1 else "out.size(0)",
            left=left, right=right, results=", ".join(results) + ",",
        )  # fmt: skip


def load(text: str, path: Path) -> Any:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def form(value: Any, others: tuple[Any, ...]) -> Any:
    """What can be seen of a result besides its elements: with whom it shares memory, and itself."""
    if not isinstance(value, torch.Tensor):
        return value
    tensors = [other for other in others if isinstance(other, torch.Tensor)]
    places = [other.data_ptr() == value.data_ptr() for other in tensors]
    same = [other is value for other in tensors]
    return value.shape, value.stride(), value.dtype, places, same


def check_calls(seed: int, folder: Path, device: str) -> None:
    """Raise where calls of a random kernel give something else than its reference does."""
    text = Program(seed).text()
    module = load(text.replace("hl.specialize", ""), folder / f"plain{seed}.py")
    kernel = load(text, folder / f"random{seed}.py").kernel
    torch.use_deterministic_algorithms(True)  # `empty` has the same elements everywhere
    try:
        for rows in (4, 4, 4, 2, 2, 2, 4):
            args = (*torch.randint(-9, 9, (2, rows, 6)).float().to(device).unbind(), rows)
            with torch.device(device):  # kernels make what has no device on that of their arguments
                expected = module.reference(*args)
            _compare(kernel(*args), expected, args, text)
    finally:
        torch.use_deterministic_algorithms(False)


def _compare(
    found: tuple[Any, ...], expected: tuple[Any, ...], args: tuple[Any, ...], text: str
) -> None:
    for value, other in zip(found, expected, strict=True):
        assert form(value, (*args, *found)) == form(other, (*args, *expected)), text
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.view(torch.int32), other.view(torch.int32)), text
