"""Runs emitted Gluon modules on the CPU, warps with roles in any order that barriers allow.

The text of a module is run as it is, with stand-ins for what it imports. Functions of roles become
generators: each call that another role could notice hands an ``Action`` to whoever runs the role,
and goes on with the result. Layouts are ignored. Copies arrive late, products read their operands
as late as they may, and what lies in a buffer before that is NaN.
"""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getgeneratorlocals
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
import triton.language as tl

from tests.backends.triton.warp_roles.gluon_language import (
    Program,
    Role,
    as_type,
    gluon_language,
    nothing,
    quotient,
    remainder,
    unpack_fp8,
)
from tests.backends.triton.warp_roles.gluon_memory import (
    Barrier,
    Buffer,
    Descriptor,
    Pointer,
    Product,
    ProtocolError,
    Ring,
    Scattered,
    View,
)

Tensor = torch.Tensor
NOTICED = {
    *("mbarrier.wait", "mbarrier.arrive", "mbarrier.expect", "fence_async_shared"),
    *("warpgroup_mma", "warpgroup_mma_wait", "tma.store_wait", "_clear_rest"),
    *("tma.async_copy_global_to_shared", "tma.async_copy_shared_to_global"),
    *("_tell", "_listen", "_meet", "_scatter", "_multiply_add", "async_copy.mbarrier_arrive"),
}
"""Calls that are handed out; so are stores into buffers and loads from them."""
CALLED = {"_wait", "_wait_for_both", "_release"}
"""Functions of the module that make such calls."""

SCATTERING = 128
"""Threads that scatter; each arrives."""
ARRIVAL_SHARE = 0.1
"""How often a copy arrives where a role could go on instead."""

Copied: TypeAlias = Descriptor | Scattered


@dataclass(frozen=True)
class Action:
    """One call of a role, not done yet."""

    name: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]


class _AsGenerators(ast.NodeTransformer):
    """Calls that others notice become ``yield``; integer division rounds as the device does."""

    def __init__(self) -> None:
        self.has_yielded = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        method = name.rpartition(".")[2]
        if method == "to" and isinstance(node.func, ast.Attribute):
            # Numbers of a program are those of Python, which have no such method.
            return ast.Call(
                ast.Name("As", ast.Load()), [node.func.value, *node.args], node.keywords
            )
        is_access = method in ("store", "load") and ".index(" in name
        if name not in NOTICED and not is_access and name not in CALLED:
            return node
        self.has_yielded = True
        if name in CALLED:
            return ast.YieldFrom(value=node)
        target = node.func.value if is_access and isinstance(node.func, ast.Attribute) else None
        args = [ast.Constant(method if is_access else name), *([target] if target else [])]
        made = ast.Call(ast.Name("Action_of", ast.Load()), [*args, *node.args], node.keywords)
        return ast.Yield(value=made)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        names: dict[type[ast.operator], str] = {ast.FloorDiv: "Quotient", ast.Mod: "Remainder"}
        name = names.get(type(node.op))
        if name is None:
            return node
        return ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])


def _action(name: str, *args: Any, **options: Any) -> Action:
    return Action(name, args, options)


@dataclass
class Machine:
    """One program: its roles, their copies and products in flight."""

    roles: list[Role]
    choose: random.Random
    copies: list[tuple[Copied, Sequence[int], Barrier, Buffer]] = field(default_factory=list)

    def run(self) -> None:
        blocked = {i: _Running(role) for i, role in enumerate(self.roles)}
        for running in blocked.values():
            running.resume(None)
        while True:
            blocked = {i: item for i, item in blocked.items() if item.action is not None}
            ready = [i for i, item in blocked.items() if item.can_go_on]
            if not blocked and not self.copies:
                return
            if not ready and not self.copies:
                raise ProtocolError(f"roles wait for ever: {[b.action for b in blocked.values()]}")
            if ready and not (self.copies and self.choose.random() < ARRIVAL_SHARE):
                self._step(blocked[self.choose.choice(ready)])
            else:
                self._land(self.copies.pop(self.choose.randrange(len(self.copies))))

    def _land(self, copy: tuple[Copied, Sequence[int], Barrier, Buffer]) -> None:
        descriptor, start, barrier, buffer = copy
        if buffer.readers:
            raise ProtocolError(f"a copy arrives in {buffer.name} while a product reads it")
        buffer.data.copy_(descriptor.read(start).view_as(buffer.data))
        buffer.is_filling = False
        barrier.bytes_left -= descriptor.num_bytes
        barrier.end_phase()

    def _step(self, running: _Running) -> None:
        action = running.action
        assert action is not None
        does = getattr(self, f"_{action.name.rpartition('.')[2].removeprefix('_')}")
        running.resume(does(running, *action.args, **action.options))

    def _wait(self, *_: Any) -> None:
        pass

    def _arrive(self, _: _Running, barrier: Barrier, count: int = 1) -> None:
        assert count == 1
        barrier.arrive()

    def _expect(self, _: _Running, barrier: Barrier, num_bytes: int) -> None:
        barrier.arrive(num_bytes)

    def _async_copy_global_to_shared(
        self, _: _Running, source: Descriptor, start: Any, barrier: Barrier, place: View
    ) -> None:
        assert place.buffer.data.shape == source.block
        place.buffer.write("a copy into")
        place.buffer.is_filling = True
        place.buffer.data.fill_(math.nan)
        self.copies.append((source, start, barrier, place.buffer))

    def _warpgroup_mma(
        self,
        running: _Running,
        lhs: Any,
        rhs: View,
        acc: Any,
        use_acc: bool = True,
        is_async: bool = False,
    ) -> Product:
        start = acc if use_acc or isinstance(acc, Product) else torch.zeros_like(acc)
        product = Product(lhs, rhs, start)
        product.start()
        running.products.append(product)
        assert is_async
        return product

    def _warpgroup_mma_wait(self, running: _Running, left: int, values: Sequence[Any]) -> Any:
        done = max(0, len(running.products) - left)
        for product in running.products[:done]:
            product.finish()
        del running.products[:done]
        found = [v.value if isinstance(v, Product) and v.value is not None else v for v in values]
        return found[0] if len(found) == 1 else tuple(found)

    def _load(self, _: _Running, place: View, *__: Any) -> Tensor:
        if place.buffer.is_filling:
            raise ProtocolError(f"{place.buffer.name} is read before the tile has arrived")
        return place.tile.clone()

    def _store(self, running: _Running, place: View, value: Tensor) -> None:
        place.buffer.write("a store into")
        place.tile.copy_(value.to(place.buffer.data.dtype))
        place.buffer.is_unfenced = True
        running.unfenced.append(place.buffer)

    def _clear_rest(self, _: _Running, place: View, left: int, axis: int, *__: Any) -> None:
        """Others may read the tile at the same time, if they have cleared it before."""
        if place.buffer.is_filling:
            raise ProtocolError(f"{place.buffer.name} is cleared before the tile has arrived")
        rest = place.tile.narrow(axis, left, place.tile.shape[axis] - left)
        if place.buffer.readers and rest.count_nonzero():
            raise ProtocolError(f"{place.buffer.name} is changed while a product reads it")
        rest.zero_()

    def _multiply_add(self, _: _Running, acc: Tensor, x: View, y: View) -> Tensor:
        """Rows of both are steps of a sum; they are read at once."""
        for place in (x, y):
            if place.buffer.is_filling:
                raise ProtocolError(f"{place.buffer.name} is read before the tile has arrived")
        return acc + x.tile.T @ y.tile

    def _scatter(
        self, running: _Running, x: Pointer, place: View, row: int, step: int, *ends: Any
    ) -> None:
        """Numbers of rows that lie along the sum, on their way."""
        place.buffer.write("a copy into")
        place.buffer.is_filling = True
        place.buffer.data.fill_(math.nan)
        running.scattered.append((Scattered(x, place.shape, *ends[:3]), (row, step), place.buffer))

    def _mbarrier_arrive(
        self, running: _Running, barrier: Barrier, *, increment_count: bool
    ) -> None:
        """All threads arrive once all that they have on the way is there."""
        assert not increment_count
        for copy, start, buffer in running.scattered:
            barrier.bytes_left += copy.num_bytes
            self.copies.append((copy, start, barrier, buffer))
        running.scattered.clear()
        for _ in range(SCATTERING):
            barrier.arrive()

    def _fence_async_shared(self, running: _Running) -> None:
        for buffer in running.unfenced:
            buffer.is_unfenced = False
        running.unfenced.clear()

    def _async_copy_shared_to_global(
        self, running: _Running, target: Descriptor, start: Sequence[int], place: View
    ) -> None:
        if place.buffer.is_unfenced:
            raise ProtocolError(f"{place.buffer.name} is copied out before a fence")
        place.buffer.readers += 1
        running.stores.append((target, start, place))

    def _store_wait(self, running: _Running, left: int) -> None:
        """Older stores are done, the last ones may not be: they read their buffers later."""
        done = max(0, len(running.stores) - left)
        for target, start, place in running.stores[:done]:
            place.buffer.readers -= 1
            target.write(start, place.buffer.data)
        del running.stores[:done]


class _Running:
    """A role up to its next action."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self.action: Action | None = None
        self.products: list[Product] = []
        self.stores: list[tuple[Descriptor, Sequence[int], View]] = []
        self.unfenced: list[Buffer] = []
        self.scattered: list[tuple[Scattered, Sequence[int], Buffer]] = []

    @property
    def can_go_on(self) -> bool:
        assert self.action is not None
        if self.action.name != "mbarrier.wait":
            return True
        barrier, parity = self.action.args
        return barrier.passes(parity)

    def resume(self, result: Any) -> None:
        try:
            self.action = self._role.send(result)
        except StopIteration:
            self.action = None
            if self.products or self.stores or self.scattered:
                raise ProtocolError("a role ends with work in flight") from None


class _HostTorch:
    """``torch`` as the host part of a module uses it, on a machine with so many processors."""

    def __init__(self, num_sms: int) -> None:
        properties = SimpleNamespace(multi_processor_count=num_sms)
        self.cuda = SimpleNamespace(get_device_properties=lambda _: properties)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Launched:
    """A function of the module; with a grid, all its programs one after the other."""

    def __init__(self, function: Callable[..., Any], module: Simulation) -> None:
        self._function, self._module = function, module

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._function(*args, **options)

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        def launch(
            *args: Any, num_warps: int, maxnreg: int, num_ctas: int = 1, **options: Any
        ) -> None:
            del num_warps, maxnreg
            module, given = self._module, [Pointer(x) if isinstance(x, Tensor) else x for x in args]
            for number in range(grid[0]):
                programs = [
                    module.make_roles(lambda: self(*given, **options), number)
                    for _ in range(num_ctas)
                ]
                module.run_program(programs[0]) if num_ctas == 1 else module.run_cluster(programs)

        return launch


class Simulation:
    """An emitted module, ready to be called as its kernel is."""

    def __init__(
        self,
        text: str,
        *,
        seed: int = 0,
        num_sms: int = 2,
        change: Callable[[ast.Module], ast.Module] = lambda tree: tree,
        run_program: Callable[[list[Role]], None] | None = None,
    ) -> None:
        choose = random.Random(seed)
        self.run_program = run_program or (lambda roles: Machine(roles, choose).run())
        self._program = Program()
        tree = change(ast.parse(text))
        kept = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
        tree.body = [_generated(node) if _is_device(node) else node for node in kept]
        self.names: dict[str, Any] = {
            **{"math": math, "torch": _HostTorch(num_sms), "Action_of": _action, "As": as_type},
            "tl": SimpleNamespace(PropagateNan=tl.PropagateNan, cast=as_type),
            "triton": SimpleNamespace(cdiv=lambda a, b: -(-a // b)),
            **{"Quotient": quotient, "Remainder": remainder, "TensorDescriptor": Descriptor},
            "gl": gluon_language(self._program),
            "libdevice": torch,
            "gluon": SimpleNamespace(jit=lambda function: _Launched(function, self)),
            "mbarrier": SimpleNamespace(MBarrierLayout=nothing, init=_set_count),
        }
        exec(compile(ast.fix_missing_locations(tree), "<emitted>", "exec"), self.names)
        # It casts bits, which tensors of torch do by another name.
        self.names["_unpack_fp8"] = unpack_fp8
        # Nothing is done to sums here but that the assembler does not know it.
        self.names["_to_store"] = lambda sums: sums

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def run_cluster(self, programs: list[list[Role]]) -> None:
        """Programs that share a tile; ``cluster_simulator`` knows how."""
        raise NotImplementedError

    def make_roles(self, entry: Callable[[], Any], number: int) -> list[Role]:
        """The roles of one program, not started."""
        self._program.number = number
        self._program.roles.clear()
        entry()
        return [_named(role) for role in self._program.roles]


def _set_count(barrier: Barrier, count: int) -> None:
    barrier.count = count


def _named(role: Role) -> Role:
    """Give rings the names of the role's arguments, for messages."""
    for name, value in getgeneratorlocals(role).items():
        if isinstance(value, Ring):
            value.name = name
            for item in value.items:
                item.name = name
    return role


def _is_device(node: ast.stmt) -> bool:
    marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
    return isinstance(node, ast.FunctionDef) and "gluon.jit" in marks


def _generated(node: ast.stmt) -> ast.stmt:
    made = _AsGenerators().visit(node)
    assert isinstance(made, ast.FunctionDef)
    return made
