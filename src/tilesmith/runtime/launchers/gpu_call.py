"""Writes the function that launches one artifact on a GPU: every call pays for each of its lines.

What is fixed is a constant in it. Tensors are asked for their address once, and the address is what
the compiled kernel gets: handed a tensor, Triton would ask again and then have the driver look it
up. So tensors that host code made are checked here to be on the device; the specialization key
covers arguments. They live as long as the call, and torch's allocator orders their memory behind
the launch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from tilesmith.artifacts import EXPRESSION_FUNCTIONS, Artifact, TensorDescription
from tilesmith.runtime.arguments import LaunchOptions
from tilesmith.runtime.calls.reader import plan_reading
from tilesmith.runtime.device import get_num_sm, is_numbered


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


class CallText:
    """The source of the launch function of one artifact.

    It calls ``__first(key, grid, arguments, constexprs)`` where no kernel is ready for the key, and
    ``__plain``, ``__elsewhere`` and ``__refuse`` where this function is not the one to launch.
    """

    def __init__(self, artifact: Artifact, captured: Sequence[str], options: LaunchOptions) -> None:
        self._artifact = artifact
        self._captured = ", ".join(captured)
        self._options = options
        self._places = {p.name: f"__{i}" for i, p in enumerate(artifact.parameters)}
        self._tensors = [self._places[p.name] for p in artifact.parameters if p.is_tensor]
        self._plan = plan_reading(artifact.parameters)
        self._read = set(self._plan.positions) if options.reader is not None else set[int]()
        self._grid = self._evaluated(artifact.grid, "__grid")
        self._constexprs = self._evaluated([text for _, text in artifact.constexprs], "__constant")

    @property
    def scope(self) -> dict[str, Any]:
        """The functions that expressions of an artifact may use."""
        reader = self._options.reader
        return {
            **EXPRESSION_FUNCTIONS,
            "__values": reader and self._plan.make_layout(reader).values,
            "num_sms": get_num_sm(self._options.device),
        }

    def lines(self) -> Iterator[str]:
        """The source of ``__launch``, line by line."""
        yield f"def __launch({self._captured}):"
        for line in self._body():
            yield f"    {line}"

    def description_key(self, description: TensorDescription) -> str:
        """An expression for what a descriptor depends on: an address, and sizes if they vary."""
        sizes = [self._renamed(size) for size in description.shape if not size.isdigit()]
        address = _address(self._places[description.tensor])
        return f"({', '.join([address, *sizes])})" if sizes else address

    def _body(self) -> Iterator[str]:
        for position, parameter in enumerate(self._artifact.parameters):
            if parameter.is_tensor or position not in self._read:
                yield f"{self._places[parameter.name]} = {parameter.source}"
        yield from self._checks()
        yield from self._readings()
        yield from self._assigned("__grid", self._artifact.grid, self._grid)
        sizes = [size for size in self._grid if not size.isdigit()]
        if sizes or "0" in self._grid:
            yield f"if not ({' and '.join(sizes or ['0'])}): return"
        texts = [text for _, text in self._artifact.constexprs]
        yield from self._assigned("__constant", texts, self._constexprs)
        yield from self._descriptor_checks()
        yield from self._launch()

    def _checks(self) -> Iterator[str]:
        options, device = self._options, self._options.device
        if device.type == "cuda" and not is_numbered(device):
            yield "__device = __current_device()"
        elif device.type == "cuda" and torch.cuda.device_count() > 1:
            yield f"if __current_device() != {device.index}:"
            yield f"    return __elsewhere({self._captured})"
        tensors = [p for p in self._artifact.parameters if p.is_tensor]
        doubts = [
            f"{self._places[p.name]}.get_device() != {self._index}"
            for p in tensors
            if not (p.is_made_at_launch or options.is_argument(p.source))
        ]
        doubts += [f"{self._places[p.name]}.is_neg()" for p in tensors if p.may_be_negated]
        if doubts:
            yield f"if {' or '.join(doubts)}:"
            yield f"    {self._refusal}"

    def _readings(self) -> Iterator[str]:
        """Addresses, whether all are multiples of 16 (``__low`` is 0 then), sizes and strides."""
        if not self._tensors:
            return
        yield "try:"
        yield from (f"    {line}" for line in self._reading_lines())
        yield "except __not_read:"
        yield f"    {self._refusal}"

    def _reading_lines(self) -> Iterator[str]:
        addresses = [_address(name) for name in self._tensors]
        if self._options.reader is not None:
            names = list(self._places.values())
            read = [names[position] for position in self._plan.positions]
            listed = [_address(name) if name in self._tensors else name for name in read]
            yield f"__low, {', '.join(listed)} = __values({', '.join(self._tensors)})"
            return
        for name, address in zip(self._tensors, addresses):
            yield f"{address} = {name}.data_ptr()"
        yield f"if not ({' and '.join(addresses)}):"
        yield f"    __check_memory({self._sources})"
        yield f"__low = {_any_low_bits(addresses)}"

    @property
    def _sources(self) -> str:
        return ", ".join(parameter.source for parameter in self._artifact.parameters)

    @property
    def _refusal(self) -> str:
        """A call that raises for the first parameter that cannot be handed over."""
        return f"__refuse({self._sources})"

    @property
    def _index(self) -> str:
        device = self._options.device
        if device.type != "cuda":
            return "-1"
        return str(device.index) if is_numbered(device) else "__device"

    def _descriptor_checks(self) -> Iterator[str]:
        """The hardware takes descriptors of tensors that are 16-byte aligned and not empty."""
        described = {self._places[item.tensor] for item in self._artifact.descriptions}
        if described:
            addresses = sorted(map(_address, described))
            yield f"if {_any_low_bits(addresses)} or not ({' and '.join(addresses)}):"
            yield f"    return __plain({self._captured})"

    def _launch(self) -> Iterator[str]:
        grid = ", ".join([*self._grid, "1", "1"][:3])
        constexprs = "".join(f"{value}, " for value in self._constexprs)
        listed = "".join(f"{name}, " for name in self._places.values())
        values = [_address(n) if n in self._tensors else n for n in self._places.values()]
        yield f"__key = {self._key()}"
        yield "__ready = __kernels.get(__key)"
        yield "if __ready is None:"
        yield f"    return __first(__key, ({grid}), ({listed}), ({constexprs}))"
        yield "__run, __function, __metadata = __ready"
        for position, item in enumerate(self._artifact.descriptions):
            key = self.description_key(item)
            yield f"__described = {key}"
            yield f"__description{position} = __kept{position}.get(__described)"
            yield f"if __description{position} is None:"
            yield f"    __description{position} = __keep{position}(__described, ({listed}))"
            values.append(f"__description{position}")
        passed = "".join(f"{value}, " for value in [*values, *self._constexprs])
        fixed = "__function, __metadata, None, None, None"
        yield f"__run({grid}, __stream({self._index}), {fixed}, {passed})"

    def _key(self) -> str:
        """What Triton specialises on, of what may change between calls.

        For addresses whether each is a multiple of 16 (0 if all are), for integers also whether
        they are 1 and whether they have 32 bits.
        """
        parts: list[str] = ["__device"] if self._index == "__device" else []
        if self._tensors:
            addresses = [_address(name) for name in self._tensors]
            each = "".join(f"{address} & 15 == 0, " for address in addresses)
            parts.append(f"__low and ({each})")
        for parameter in self._artifact.parameters:
            if not parameter.is_tensor and parameter.dtype[0] in "iu":
                name = self._places[parameter.name]
                parts += [f"{name} == 1 or {name} & 15 and 2", f"-{2**31} <= {name} < {2**31}"]
        parts += [value for value in self._constexprs if value.startswith("__")]
        return parts[0] if len(parts) == 1 else f"({''.join(f'{part}, ' for part in parts)})"

    def _evaluated(self, texts: Sequence[str], prefix: str) -> list[str]:
        """Each expression's value if it is fixed, else the name that it gets."""
        results: list[str] = []
        for position, text in enumerate(texts):
            names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
            is_fixed = names.isdisjoint(self._places)
            results.append(repr(eval(text, self.scope)) if is_fixed else f"{prefix}{position}")
        return results

    def _assigned(self, prefix: str, texts: Sequence[str], names: Sequence[str]) -> Iterator[str]:
        for text, name in zip(texts, names):
            if name.startswith(prefix):
                yield f"{name} = {self._renamed(text)}"

    def _renamed(self, text: str) -> str:
        """An expression over parameters, with the names that they have in the function."""
        tree = _Renaming(self._places).visit(ast.parse(text, mode="eval"))
        return ast.unparse(tree)


def _address(name: str) -> str:
    return f"{name}_address"


def _any_low_bits(addresses: Sequence[str]) -> str:
    """An expression that is 0 if all addresses are multiples of 16."""
    return f"({' | '.join(addresses)}) & 15"
