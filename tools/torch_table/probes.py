"""One function for each feature of torch: it uses a kernel through it, and compares with eager."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tilesmith.language as hl


def row_softmax(x: torch.Tensor) -> torch.Tensor:
    """The kernel of all probes, not decorated yet."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.softmax(x[tile, :], dim=1)
    return out


@dataclass(frozen=True)
class Use:
    """How a kernel is used."""

    kernel: Any
    sizes: Sequence[int]
    """Numbers of rows, one after the other."""
    is_dynamic: bool
    device: str = "cpu"

    def rows(self, count: int) -> torch.Tensor:
        """Random rows."""
        generator = torch.Generator().manual_seed(count)
        return torch.randn(count, 9, generator=generator).to(self.device)

    def run(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Call a function that uses the kernel with rows of all sizes."""
        for size in self.sizes:
            x = self.rows(size)
            torch.testing.assert_close(function(x), softmax_and_more(x))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Use the kernel between functions of torch."""
        return self.kernel(x * 2) + 1


def softmax_and_more(x: torch.Tensor) -> torch.Tensor:
    """What ``Use`` computes, by torch."""
    return torch.softmax(x * 2, 1) + 1


class _Module(torch.nn.Module):
    def __init__(self, use: Use) -> None:
        super().__init__()
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Use the kernel."""
        return self.use.kernel(x * 2) + 1


def _compiled(use: Use, backend: str) -> None:
    torch.compiler.reset()
    options: dict[str, Any] = {"dynamic": True} if use.is_dynamic else {}
    use.run(torch.compile(use.__call__, backend=backend, fullgraph=True, **options))


def compiled(use: Use) -> None:
    """``torch.compile`` as one graph."""
    _compiled(use, "aot_eager")


def compiled_by_inductor(use: Use) -> None:
    """The same with Inductor."""
    _compiled(use, "inductor")


def _exported(use: Use) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=2, max=64)
    is_dynamic = use.is_dynamic or len(use.sizes) > 1
    shapes: Any = ({0: rows},) if is_dynamic else None
    args = (use.rows(use.sizes[0]),)
    return torch.export.export(_Module(use), args, dynamic_shapes=shapes)


def exported(use: Use) -> None:
    """``torch.export``, saved and loaded."""
    buffer = io.BytesIO()
    torch.export.save(_exported(use), buffer)
    buffer.seek(0)
    use.run(torch.export.load(buffer).module())


def packaged(use: Use) -> None:
    """AOTInductor: compiled ahead of time, packaged, loaded."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.pt2")
        torch._inductor.aoti_compile_and_package(_exported(use), package_path=path)
        use.run(torch._inductor.aoti_load_package(path))


def traced_by_fx(use: Use) -> None:
    """``make_fx``: one node of the kernel's own."""
    mode = "symbolic" if use.is_dynamic or len(use.sizes) > 1 else "fake"
    graph = make_fx(lambda x: use(x), tracing_mode=mode)(use.rows(use.sizes[0]))  # noqa: PLW0108
    assert "torch.ops.tilesmith.row_softmax" in graph.code
    use.run(graph)


def traced_by_jit(use: Use) -> None:
    """``torch.jit.trace``."""
    traced: Any = torch.jit.trace(use.__call__, (use.rows(use.sizes[0]),))
    use.run(traced)


def on_fake_tensors(use: Use) -> None:
    """Fake tensors: forms without values."""
    mode = FakeTensorMode(shape_env=ShapeEnv() if use.is_dynamic else None)
    for size in use.sizes:
        fake = mode.from_tensor(use.rows(size), static_shapes=not use.is_dynamic)
        with mode:
            found = use(fake)
        assert (found.shape, found.dtype) == (fake.shape, fake.dtype)
    use.run(use)


def checked(use: Use) -> None:
    """``torch.library.opcheck`` of the operator."""
    for size in use.sizes:
        operator = use.kernel.operator((use.rows(size),))
        torch.library.opcheck(operator.definition, (use.rows(size).requires_grad_(),))


def batched(use: Use) -> None:
    """``torch.vmap``."""
    for size in use.sizes:
        x = torch.stack([use.rows(size), use.rows(size + 1)[:-1]])
        torch.testing.assert_close(torch.vmap(use)(x), torch.stack([*map(softmax_and_more, x)]))


def differentiated_by_func(use: Use) -> None:
    """``torch.func.grad``."""
    for size in use.sizes:
        x = use.rows(size)
        found, exact = (
            torch.func.grad(lambda y, f=f: (f(y) ** 2).sum())(x) for f in (use, softmax_and_more)
        )
        torch.testing.assert_close(found, exact)


def with_tangents(use: Use) -> None:
    """Dual numbers of ``torch.autograd.forward_ad``."""
    for size in use.sizes:
        with forward_ad.dual_level():
            x = forward_ad.make_dual(use.rows(size), use.rows(size))
            found, exact = (forward_ad.unpack_dual(f(x)).tangent for f in (use, softmax_and_more))
            torch.testing.assert_close(found, exact)


def functionalized(use: Use) -> None:
    """``torch.func.functionalize``."""
    use.run(torch.func.functionalize(use))


def in_inference_mode(use: Use) -> None:
    """``torch.inference_mode``."""
    with torch.inference_mode():
        use.run(use)


def under_autocast(use: Use) -> None:
    """``torch.autocast``: a kernel computes with the types it is given."""
    with torch.autocast(use.device, torch.bfloat16):
        use.run(use)


def differentiated(use: Use) -> None:
    """Gradients in eager mode."""
    _differentiated(use, use)


def differentiated_in_graphs(use: Use) -> None:
    """Gradients through ``torch.compile``."""
    torch.compiler.reset()
    options: dict[str, Any] = {"dynamic": True} if use.is_dynamic else {}
    compiled_use = torch.compile(use.__call__, backend="aot_eager", fullgraph=True, **options)
    _differentiated(use, compiled_use)


def _differentiated(use: Use, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for size in use.sizes:
        x, y = (use.rows(size).requires_grad_() for _ in range(2))
        (function(x) ** 2).sum().backward()
        (softmax_and_more(y) ** 2).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


def on_shards(use: Use) -> None:
    """``DTensor``: rows on the shards of a mesh, and whole tensors."""
    is_ours = not dist.is_initialized()
    if is_ours:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for placement in (Shard(0), Replicate()):
            for size in use.sizes:
                x = DTensor.from_local(use.rows(size), mesh, [placement])
                found = use.kernel(x)
                assert found.placements == (placement,)
                torch.testing.assert_close(found.to_local(), torch.softmax(x.to_local(), 1))
    finally:
        if is_ours:
            dist.destroy_process_group()


def under_modes(use: Use) -> None:
    """``__torch_dispatch__`` and ``__torch_function__`` modes."""
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class WatchFunctions(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with Watch():
        use.run(use)
    assert any("tilesmith.row_softmax" in name for name in seen)
    with WatchFunctions():
        use.run(use)


def in_cuda_graphs(use: Use) -> None:
    """CUDA graphs; needs a GPU."""
    for size in use.sizes:
        x = use.rows(size)
        use(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = use(x)
        x.copy_(use.rows(size + 1)[:-1])
        graph.replay()
        torch.testing.assert_close(found, softmax_and_more(x))
