"""Does a kernel solve a puzzle? Bounds and races are checked, and results against fp64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import torch

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.jit.function_protocol.objects import TypedKernel
from tilesmith.puzzles.touches import Touches, run_recorded, svg_picture, text_picture
from tilesmith.settings import Settings

TOLERANCE = 1e-4
PICTURED_BLOCK = 2
Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """Whether a kernel solves a puzzle; if not, what is wrong. In notebooks it is a picture."""

    title: str
    is_solved: bool
    problem: str = ""
    touches: Touches | None = None

    @property
    def picture(self) -> str:
        """What programs touch, for a terminal."""
        return "" if self.touches is None else text_picture(self.touches)

    @property
    def verdict(self) -> str:
        """One sentence, or the error with the line that it is about."""
        return f"{self.title}: solved" if self.is_solved else f"{self.title}: {self.problem}"

    def __str__(self) -> str:
        return "\n\n".join(filter(None, (self.picture, self.verdict)))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        drawn = "" if self.touches is None else svg_picture(self.touches)
        return f"<div>{drawn}<pre>{escape(self.verdict)}</pre></div>"


def check(
    title: str,
    given: Any,
    reference: Callable[..., torch.Tensor],
    examples: Sequence[Arguments],
    block_size: int = PICTURED_BLOCK,
) -> Outcome:
    """Run a kernel on all examples; the first one, which is small, is drawn."""
    if not isinstance(given, TypedKernel):
        return Outcome(title, False, "decorate the function with @tilesmith.kernel")
    touches, problem = None, ""
    try:
        problem, touches = _first(given, reference, examples[0], block_size)
        for args in () if problem else examples:
            problem = problem or _later(given, reference, args)
    except BaseError as error:
        problem = str(error)
    except Exception as error:  # host code of a kernel is the user's, and may raise anything
        problem = f"{type(error).__name__}: {error}"
    return Outcome(title, not problem, problem, touches)


def _first(
    given: Any,
    reference: Callable[..., torch.Tensor],
    args: Arguments,
    block_size: int,
) -> tuple[str, Touches | None]:
    if given.staged is not None:
        return _later(given, reference, args), None
    copies = _copied(args)
    results, touches = run_recorded(given.bind(copies), copies, block_size)
    return find_difference(results[0] if results else None, reference, args), touches


def _later(given: Any, reference: Callable[..., torch.Tensor], args: Arguments) -> str:
    """With checks, by the interpreter; then as compiled code, which must agree."""
    make = type(given)
    checked = make(given.fn, settings=Settings(check=True))
    problem = find_difference(_result(checked(*_copied(args))), reference, args)
    plain = make(given.fn)
    return problem or find_difference(_result(plain(*_copied(args))), reference, args)


def _copied(args: Arguments) -> Arguments:
    return tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)


def _result(found: Any) -> torch.Tensor | None:
    return found if isinstance(found, torch.Tensor) else None


def _widened(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


def find_difference(
    found: torch.Tensor | None, reference: Callable[..., torch.Tensor], args: Arguments
) -> str:
    """What is wrong with a result; "" for one that is right."""
    expected = reference(*map(_widened, args))
    if found is None:
        return "it returns no tensor"
    if found.shape != expected.shape:
        return f"its result has the shape {list(found.shape)}, expected {list(expected.shape)}"
    is_near = torch.isclose(
        found.double(), expected.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
    )
    if bool(is_near.all()):
        return ""
    place = tuple((~is_near).nonzero()[0].tolist())
    sizes = ", ".join(f"{list(x.shape)}" for x in args if isinstance(x, torch.Tensor))
    return (
        f"element {list(place)} is {found[place].item():.6g}, expected "
        f"{expected[place].item():.6g}, and {int((~is_near).sum())} of {is_near.numel()} are wrong "
        f"(arguments of the shapes {sizes})"
    )
