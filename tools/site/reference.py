"""Pages of the reference that are made from the source: language, settings, keys, commands, errors.

Every example on them is a kernel that the tests run, or a mistake that they make.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from typer.testing import CliRunner

import tilesmith.language as hl
from tests.conformance.all_cases import CASES
from tests.errors.all_mistakes import CASES as MISTAKES
from tests.errors.exception_table import NEVER_RAISED
from tests.examples.cases import EXAMPLES
from tests.wrong_uses.not_shown import NOT_SHOWN
from tests.wrong_uses.pages import CLASSES_SHOWN, all_uses
from tilesmith.cli.main import COMMANDS, app, load_command
from tilesmith.exc import InvalidConfigKeys
from tilesmith.jit.kernel import Kernel
from tilesmith.keywords import ConfigKeywords
from tilesmith.schedule.config import KEYS, keep_known
from tilesmith.setting_rules import REFUSED
from tilesmith.settings import Settings
from tools.site.examples import KERNELS
from tools.site.key_examples import KEY_EXAMPLES, text_of
from tools.site.pages import ROOT
from tools.site.setting_examples import command_of, keyword_of, said_of, variables_of

STUB = Path(hl.__file__).with_suffix(".pyi")
GROUPS = {
    "Loops": ("tile", "grid", "jagged_tile", "static_range", "barrier"),
    "Tiles": ("Tile", "tile_index", "tile_begin", "tile_end", "tile_block_size", "tile_id"),
    "Memory": ("load", "store", "paired", "subscript", "StackTensor", "stacktensor_like"),
    "New values": ("zeros", "full", "arange", "rand", "rand4x", "randint"),
    "Products": ("dot", "dot_scaled"),
    "Reductions and scans": ("reduce", "associative_scan", "cumsum", "cumprod"),
    "Rearrangement": ("join", "split"),
    "Atomics": (
        "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor",
        "atomic_xchg", "atomic_cas",
    ),
    "Packed formats": (
        "float4_e2m1fn_x2_to_float32", "load_float4_e2m1fn_x16_to_float16",
        "load_bfloat16_x16_to_float16",
    ),
    "Host code": ("specialize", "constexpr", "register_block_size", "register_tunable"),
    "Debugging": ("device_print", "breakpoint"),
    "Triton and assembly": ("inline_triton", "triton_kernel", "inline_asm_elementwise"),
}  # fmt: skip
NOTES = {
    "load": "GPU: `eviction_policy` is a hint to the cache. CPU: it has no effect.",
    "barrier": "GPU: all programs run at once, so the launch is persistent. CPU: threads meet.",
    "rand": "The same numbers on GPU and CPU, for the same seed and shape, whatever the tiles.",
    "rand4x": "The same numbers on GPU and CPU.",
    "randint": "The same numbers on GPU and CPU.",
    "dot": "GPU: matrix units, where the types have them. CPU: AMX (bf16) or VNNI (int8) where the "
    "processor has them, else vectors. fp32 is exact fp32 unless `dot_precision` says otherwise.",
    "dot_scaled": "GPU: units for MX formats from sm_100 on; else operands are converted first.",
    "breakpoint": "Only by the interpreter: `TILESMITH_INTERPRET=1` or `TILESMITH_CHECK=1`.",
    "device_print": "GPU: printed by the device, in any order. CPU: by the program that runs.",
    "inline_triton": "GPU only.",
    "triton_kernel": "GPU only.",
    "inline_asm_elementwise": "GPU only: PTX or GCN text.",
}
"""Where GPU and CPU differ. All other functions are the same on both."""
SAME = "The same on GPU and CPU."
INDENT = "    "


def language_page() -> str:
    """Every function of the language: signature, meaning, a kernel that uses it, GPU and CPU."""
    lines = [
        "# Functions of the language",
        "",
        "`import tilesmith.language as hl`. In device code these work beside",
        "[torch functions](ops.md).",
        "Examples are kernels that the test suite compares with fp64, on every backend.",
        "",
    ]
    for group, names in GROUPS.items():
        lines += [f"## {group}", ""]
        for name in names:
            lines += _entry(name)
    return "\n".join(lines)


def _entry(name: str) -> Iterator[str]:
    yield from (f"### hl.{name}", "", "```python", *signatures()[name], "```", "")
    yield from (docstring_of(name), "", NOTES.get(name, SAME), "")
    example = example_of(name)
    if example:
        yield from ('??? example "A kernel that uses it"', "")
        yield from (f"{INDENT}{line}".rstrip() for line in ["```python", *example, "```"])
        yield ""


@cache
def signatures() -> dict[str, list[str]]:
    """What type checkers are told of each name."""
    found: dict[str, list[str]] = {}
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            # One overload will do: they differ in whether one tensor or several are given.
            given = f"hl.{node.name}({ast.unparse(node.args)})"
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            found.setdefault(
                node.name,
                [given.replace("torch.Tensor", "Tensor") + returns.replace("_Loop", "Iterator")],
            )
        elif isinstance(node, ast.ClassDef):
            fields_of = [ast.unparse(part) for part in node.body if isinstance(part, ast.AnnAssign)]
            found[node.name] = [f"class hl.{node.name}", *(f"    {text}" for text in fields_of)]
    return {"constexpr": ["hl.constexpr(value)", "def kernel(x, mode: hl.constexpr): ..."], **found}


def docstring_of(name: str) -> str:
    """The docstring of a function, as Markdown."""
    text = inspect.getdoc(getattr(hl, name)) or ""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    # Sections of Google's style become bold words, and what is indented below them a list or text.
    parts = re.split(r"^(Args|Examples?|Returns|Attributes):$", text, flags=re.MULTILINE)
    lines = [parts[0].rstrip()]
    for head, body in zip(parts[1::2], parts[2::2]):
        entries = dedent(body.strip("\n")).splitlines()
        is_list = head in ("Args", "Attributes")
        lines += ["", f"**{head}**", ""]
        lines += [_list_item(entry) if is_list else entry for entry in entries]
    return "\n".join(lines)


def _list_item(entry: str) -> str:
    name, colon, rest = entry.partition(": ")
    return f"- `{name}`: {rest}" if colon and name.isidentifier() else f"  {entry.strip()}"


@cache
def _sources() -> list[tuple[str, list[str]]]:
    """Sources of the kernels that tests run, the shortest first."""
    kernels = {case.kernel.name: case.kernel for case in (*CASES, *EXAMPLES)}
    texts = [dedent(inspect.getsource(kernel.fn)) for kernel in kernels.values()]

    # Those first that use little else of the language.
    def others(text: str) -> int:
        return len(set(re.findall(r"\bhl\.\w+", text)))

    pairs = [(text, text.rstrip().splitlines()) for text in texts]
    return sorted(pairs, key=lambda pair: (others(pair[0]), len(pair[1])))


def example_of(name: str) -> list[str]:
    """The shortest kernel of the tests that uses a function."""
    if name in KERNELS:
        return dedent(inspect.getsource(KERNELS[name].fn)).rstrip().splitlines()
    wanted = re.compile(rf"\bhl\.{name}\b") if name != "Tile" else re.compile(r"\.begin\b")
    return next((lines for text, lines in _sources() if wanted.search(text)), [])


def settings_page() -> str:
    """Every setting with its variable, default and what it may be."""
    lines = [
        "# Settings and environment variables",
        "",
        "A setting is a keyword of `@tilesmith.kernel`, or an environment variable. The keyword",
        "wins. Under `tilesmith run` variables that begin with `HELION_` count, too. A name or",
        "value that does not exist is refused:",
        "",
        "```",
        *_refused_setting(),
        "```",
        "",
    ]
    docs = _field_docs(Settings)
    for item in fields(Settings):
        variables = variables_of(item)
        default = item.default if item.default is not MISSING else "{}"
        allowed = item.metadata["rule"].allowed
        lines += [f"## `{item.name}`", "", *_paragraph(docs.get(item.name, ""))]
        if item.name in REFUSED:
            lines += [f"Only the default means anything here: {REFUSED[item.name]}.", ""]
        named = ", ".join(f"`{name}`" for name in variables)
        lines += [f"Variable {named}; default `{_shown(default)}`; may be {allowed}.", ""]
        commands = [command_of(variable, item.name) for variable in variables]
        lines += ["```python", keyword_of(item.name), "```", ""]
        if any(commands):
            lines += ["```console", *(f"$ {command}" for command in commands), "```", ""]
        said = said_of(item.name)
        if said:
            lines += ["```text", *said.splitlines(), "```", ""]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return str(getattr(value, "value", value)) if value != "" else '""'


def _paragraph(text: str) -> list[str]:
    return [re.sub(r"``([^`]+)``", r"`\1`", text), ""] if text else []


def _refused_setting() -> list[str]:
    try:
        Settings(static_shape=False)  # type: ignore[call-arg]
    except TypeError as error:
        return [">>> @tilesmith.kernel(static_shape=False)", f"{type(error).__name__}: {error}"]
    raise AssertionError("a setting that does not exist was taken")


def _field_docs(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a class."""
    (tree,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for before, after in zip(tree.body, tree.body[1:]):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(before, ast.AnnAssign) and is_text:
            found[ast.unparse(before.target)] = inspect.cleandoc(after.value.value)  # type: ignore
    return found


KEY_NOTES = {
    "block_sizes": "Tile widths: one for each tile without a fixed size, in source order.",
    "loop_orders": "In which order the axes of a loop are walked.",
    "flatten_loops": "Whether the axes of a loop are walked as one.",
    "l2_groupings": "How many rows of blocks are walked together, so that they share the L2 cache.",
    "reduction_loops": "Long rows: `None` holds them whole, a number walks them in such chunks.",
    "range_unroll_factors": "How often inner loops are unrolled.",
    "range_warp_specializes": "Whether Triton may give warps of an inner loop different roles.",
    "range_num_stages": "How deep inner loops are pipelined.",
    "range_multi_buffers": "Whether accumulators of inner loops may have several buffers.",
    "range_flattens": "Whether nested inner loops are walked as one.",
    "static_ranges": "Whether inner loops are unrolled whole.",
    "num_warps": "Warps of a program.",
    "num_stages": "How many turns ahead loads are.",
    "indexing": "How memory is read: `pointer`, `block_ptr` or `tensor_descriptor` (TMA).",
    "atomic_indexing": "The same for atomics.",
    "pid_type": "How programs are numbered and launched: `flat`, `xyz`, `persistent_blocked`, ...",
    "num_sm_multiplier": "Persistent programs for each multiprocessor.",
    "load_eviction_policies": "What caches keep, for each load.",
    "load_cache_modifiers": "Cache modifiers of loads.",
    "store_cache_modifiers": "Cache modifiers of stores.",
    "waves_per_eu": "AMD: waves for each execution unit.",
    "matrix_instr_nonkdim": "AMD: the size of matrix instructions.",
    "xcd_remap": "AMD: programs are spread over chiplets.",
    "maxnreg": "NVIDIA: most registers of a thread.",
    "epilogue_subtile": "Whether what follows a product is done in parts.",
    "cpu_threads": "Threads; 0: as many as torch uses.",
    "cpu_unroll": "Vectors that an inner loop works on at a time.",
    "cpu_streaming_stores": "Whether stores bypass the caches.",
    "cpu_schedule": "How programs are given to threads: `static` or `dynamic`.",
}


OTHER_KEYS = {
    "advanced_controls_file": "A file for Helion's assembler controls: taken, and without effect.",
    "num_ctas": "Helion's size of a cluster: taken, and without effect.",
    "occupancy": "Helion's wish for programs on a multiprocessor: taken, and without effect.",
    "stages": "Kernels of several launches: a list with one config for each.",
    "structure": "Which form the kernel takes where there are several, such as `exchange`, where "
    "programs share long rows: [tuning](../guides/tuning.md) names them.",
}


def keys_page() -> str:
    """Every key of a Config."""
    kinds = ConfigKeywords.__annotations__
    lines = [
        "# Config keys",
        "",
        "`tilesmith.Config(block_sizes=[64, 64], num_warps=8)`. A key that a kernel or a device",
        "has no use for is dropped; one that nobody knows is refused. Lists have an entry for each",
        "tile, loop or access, in source order; the singular (`block_size=64`) is for all.",
        "",
        "```",
        *_refused_key(),
        "```",
        "",
        "Each example has an effect on the device beside it, for a product of matrices, a sum of",
        "rows or the like.",
        "",
        "| key | default | meaning | example |",
        "|---|---|---|---|",
    ]
    for key in KEYS:
        default = "for each kernel" if key.is_list else f"`{key.default}`"
        where = f"`{text_of(key.name)}` on {KEY_EXAMPLES[key.name].target}"
        lines.append(f"| `{key.name}` | {default} | {KEY_NOTES[key.name]} | {where} |")
    others = sorted(set(kinds) - {key.name for key in KEYS} - {key.singular for key in KEYS})
    lines += ["", "Keys of some kernels only:", "", "| key | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {OTHER_KEYS[name]} |" for name in others]
    lines += ["", "A tunable that a kernel registers is a key of its own name.", ""]
    return "\n".join(lines)


def _refused_key() -> list[str]:
    try:
        keep_known({"block_sizs": [64]}, "triton", ())
    except InvalidConfigKeys as error:
        return [">>> tilesmith.Config(block_sizs=[64])   # at the first call", str(error)]
    raise AssertionError("a key that does not exist was taken")


def commands_page() -> str:
    """What each command says of itself."""
    lines = ["# Commands", "", "`tilesmith COMMAND --help` prints the same.", ""]
    for name in COMMANDS:
        lines += [f"## tilesmith {name}", "", *_help(name)]
        for inner in getattr(load_command(name), "commands", {}):
            lines += [f"### tilesmith {name} {inner}", "", *_help(name, inner)]
    return "\n".join(lines)


def _help(*words: str) -> list[str]:
    runner = CliRunner(env={"COLUMNS": "90", "TERM": "dumb"})
    text = runner.invoke(app, [*words, "--help"]).stdout
    return ["```", *text.rstrip().splitlines(), "```", ""]


def errors_page() -> str:
    """Every class of error with a kernel or call that produces it, and what it says."""
    lines = [
        "# Every error, with an example",
        "",
        "Each is a program that the test suite runs. [Errors and warnings](errors.md) says how",
        "they are built.",
        "",
    ]
    found: dict[str, list[str]] = {}
    for cases in MISTAKES.values():
        for case in cases:
            entry = _mistake(case)
            if entry:
                found.setdefault(entry[0], entry[1])
    for use in all_uses():
        for name in CLASSES_SHOWN.findall(use.text):
            code, text = use.code.rstrip().splitlines(), use.text.rstrip().splitlines()
            shown = [f"```{use.kind}", *code, "```", "", "```text", *text, "```"]
            found.setdefault(name, shown)
    for name in sorted(found):
        lines += [f"## {name}", "", *found[name], ""]
    reasons = NEVER_RAISED | {name: why for name, (why, _) in NOT_SHOWN.items()}
    lines += ["## Not shown", "", "| class | why |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in sorted(reasons.items()) if name not in found]
    return "\n".join([*lines, ""])


def _mistake(case: Any) -> tuple[str, list[str]] | None:
    function = case.call.fn if isinstance(case.call, Kernel) else case.call
    try:
        source = dedent(inspect.getsource(function)).rstrip().splitlines()
    except (OSError, TypeError):
        return None
    try:
        case.call(*case.args, **case.keywords)
    except Exception as error:
        raised = error
    else:
        return None
    given = ", ".join(f"{key}={value!r}" for key, value in case.keywords.items())
    called = [f"{function.__name__}({given})"] if given else []
    text = str(raised).replace(f"{ROOT}/", "").replace("tests/errors/", "").splitlines()
    name = type(raised).__name__
    return name, ["```python", *source, *called, "```", "", "```text", *text, "```"]
