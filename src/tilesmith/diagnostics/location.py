"""Where in the user's source a value comes from: file, line, columns and the chain of callers."""

from __future__ import annotations

import ast
import dis
import linecache
import os
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, TracebackType

PACKAGE_DIRECTORY = str(Path(__file__).resolve().parents[1]) + os.sep
STANDARD_LIBRARY = str(Path(os.__file__).resolve().parent) + os.sep
# Shipped kernels are written as a user would write them; errors in them show their lines.
KERNELS_DIRECTORY = PACKAGE_DIRECTORY + "shipped" + os.sep
# Installed packages lie inside the standard library's folder, ours may be one of them.
USER_DIRECTORIES = (
    STANDARD_LIBRARY + "site-packages" + os.sep,
    STANDARD_LIBRARY + "dist-packages" + os.sep,
)
CONTROL_FLOW = tuple(
    os.path.join(PACKAGE_DIRECTORY, "frontend", file)
    for file in ("control_flow.py", "device_loops.py", "host_calls", f"tracing{os.sep}merging.py")
)
"""What runs loops and branches of device code, and functions of host code: user code we call."""
GENERATED_CODE = ("<string>", "<frozen")
"""What dataclasses and the import system make; no user wrote it."""
MAX_CALLERS = 8
_SUBSCRIPT_OPERATOR = 26
BLOCK_FIELDS = ("body", "orelse", "handlers", "finalbody", "cases")

Position = tuple[FrameType, int, int]
"""A frame, the line and the instruction that it executes."""
Columns = tuple[int, int | None]
"""First column and one past the last, 0-based, in UTF-8 bytes; None: it goes on in later lines."""


@dataclass(frozen=True)
class SourceLocation:
    """A place in user code; ``span``, or else ``code`` and ``instruction``, give its columns."""

    file: str
    line: int
    function: str = ""
    code: CodeType | None = field(default=None, repr=False, compare=False)
    instruction: int = field(default=-1, repr=False, compare=False)
    caller: SourceLocation | None = field(default=None, repr=False, compare=False)
    span: Columns | None = field(default=None, repr=False, compare=False)

    @property
    def columns(self) -> Columns | None:
        """The columns on ``line``, where they are known (from frames: Python 3.11 on)."""
        if self.span is not None or self.code is None:
            return self.span
        return _columns_of_instruction(self.code, self.instruction, self.line)

    @property
    def text(self) -> str:
        """The source at this place, within its line; "" where columns are not known."""
        columns = self.columns
        if columns is None:
            return ""
        line = linecache.getline(self.file, self.line).rstrip("\n").encode()
        return line[slice(*columns)].decode(errors="replace")

    @property
    def link(self) -> str:
        """``path:line``, which terminals and editors open: from the working folder, if inside."""
        whole, here = os.path.abspath(self.file), os.getcwd() + os.sep
        is_file = not self.file.startswith("<")
        return f"{whole.removeprefix(here) if is_file else self.file}:{self.line}"

    def __reduce__(self) -> tuple[type[SourceLocation], tuple[object, ...]]:
        # Code objects cannot be pickled, and errors travel between processes: keep the columns.
        state = (self.file, self.line, self.function, None, -1, self.caller, self.columns)
        return SourceLocation, state

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


UNKNOWN = SourceLocation("<unknown>", 0)


def _columns_of_instruction(code: CodeType, instruction: int, line: int) -> Columns | None:
    if sys.version_info < (3, 11) or instruction < 0:
        return None
    positions = next(islice(code.co_positions(), instruction // 2, None), None)
    if positions is None:
        return None
    first_line, last_line, start, end = positions
    if first_line != line or start is None or end is None:
        return None
    return start, (end if last_line == line else None)


def is_subscript(loc: SourceLocation) -> bool:
    """Whether the instruction at a place is ``sequence[index]``."""
    if loc.code is None or loc.instruction < 0:
        return False
    code = loc.code.co_code
    name = dis.opname[code[loc.instruction]]
    # From Python 3.14 on a subscript is a binary operator.
    is_operator = name == "BINARY_OP" and code[loc.instruction + 1] == _SUBSCRIPT_OPERATOR
    return name.startswith("BINARY_SUBSCR") or is_operator


def location_of_node(node: ast.AST, file: str, function: str = "") -> SourceLocation:
    """The place of a syntax node; of a compound statement, its header only."""
    line = getattr(node, "lineno", 0)
    start = getattr(node, "col_offset", None)
    span = None if start is None else (start, _end_column(node, line, start))
    return SourceLocation(file, line, function, span=span)


def _end_column(node: ast.AST, line: int, start: int) -> int | None:
    inside = {id(child) for name in BLOCK_FIELDS for child in _block(node, name)}
    if not inside:
        end_line, end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", None)
        return end if end_line == line else None
    header = [child for child in ast.iter_child_nodes(node) if id(child) not in inside]
    parts = [part for child in header for part in ast.walk(child)]
    on_line = [part for part in parts if getattr(part, "end_lineno", 0) == line]
    return max([start + len("def"), *(getattr(part, "end_col_offset", 0) for part in on_line)])


def _block(node: ast.AST, name: str) -> list[ast.AST]:
    # The body of a lambda or of a conditional expression is one node, part of the expression.
    statements = getattr(node, name, [])
    return statements if isinstance(statements, list) else []


@lru_cache(maxsize=1024)  # each op of a trace asks for the files of all its callers
def _is_user_file(file: str, skipped: tuple[str, ...]) -> bool:
    if file.startswith(PACKAGE_DIRECTORY):
        return file.startswith(KERNELS_DIRECTORY)
    return not file.startswith(skipped) or file.startswith(USER_DIRECTORIES)


def _skipped(library_directories: tuple[str, ...]) -> tuple[str, ...]:
    return (PACKAGE_DIRECTORY, STANDARD_LIBRARY, *GENERATED_CODE, *library_directories)


def _innermost(positions: list[Position]) -> SourceLocation:
    """The last position, each with the one before it as its caller."""
    place: SourceLocation | None = None
    for frame, line, instruction in positions[-MAX_CALLERS - 1 :]:
        code = frame.f_code
        place = SourceLocation(code.co_filename, line, code.co_name, code, instruction, place)
    return place or UNKNOWN


def capture_location(*library_directories: str) -> SourceLocation:
    """The innermost user frame of the current call, with its user callers.

    Frames of this package, of the standard library and of ``library_directories`` (torch, for one)
    are passed over. What called the package, to compile a kernel or to trace one, is no caller.
    """
    skipped = _skipped(library_directories)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_user_file(frame.f_code.co_filename, skipped):
        frame = frame.f_back
    positions: list[Position] = []
    while frame is not None and len(positions) <= MAX_CALLERS:
        if _is_user_file(frame.f_code.co_filename, skipped):
            if not positions or not _is_part(positions[-1][0], frame):
                positions.append((frame, frame.f_lineno, frame.f_lasti))
        elif not frame.f_code.co_filename.startswith(CONTROL_FLOW):
            break
        frame = frame.f_back
    return _innermost(positions[::-1])


def _is_part(inner: FrameType, outer: FrameType) -> bool:
    """Whether a frame is a loop or branch of the function of the other: no call of its own."""
    return inner.f_code.co_name == outer.f_code.co_name and inner.f_code is not outer.f_code


def location_of_traceback(
    traceback: TracebackType | None, *library_directories: str
) -> SourceLocation:
    """The innermost user frame that an exception passed, with its user callers."""
    skipped = _skipped(library_directories)
    positions: list[Position] = []
    is_after_library = False
    while traceback is not None:
        frame = traceback.tb_frame
        is_user = _is_user_file(frame.f_code.co_filename, skipped)
        if is_user and is_after_library:
            positions = []
        if is_user and positions and _is_part(frame, positions[-1][0]):
            positions.pop()
        if is_user:
            # The frame itself may have moved on, into a handler.
            positions.append((frame, traceback.tb_lineno, traceback.tb_lasti))
        is_flow = frame.f_code.co_filename.startswith(CONTROL_FLOW)
        is_after_library = not is_user and not is_flow
        traceback = traceback.tb_next
    return _innermost(positions)
