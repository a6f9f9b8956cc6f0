"""Rows of a file by the options that choose what runs: operators, inputs, implementations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from tilesmith.bench.averages import by_operator
from tilesmith.bench.implementations import HELION, Implementation, Kind
from tilesmith.bench.plan import DTYPES, Options, PlanError, suggest
from tilesmith.bench.row import Owner, Row


def choose_rows(rows: Sequence[Row], options: Options) -> list[Row]:
    """Those that are meant; PlanError for a name that no row has, and if none is left.

    Which shard of its inputs an operator's row is in cannot be told from a file.
    """
    if options.shard is not None:
        raise PlanError(
            "--input-shard does not go with --from: a file does not say how many inputs there "
            "are; choose with --input-id"
        )
    chosen = _named(rows, "--kernel", options.kernels, lambda row: row.operator, _is_operator)
    chosen = _named(chosen, "--only", options.only, lambda row: row.implementation, _is_meant)
    dtype = str(DTYPES[options.dtype]).removeprefix("torch.") if options.dtype else ""
    chosen = _named(chosen, "--dtype", _given(dtype), lambda row: row.dtype, _is_dtype)
    chosen = _named(chosen, "--device", _given(options.device), lambda row: row.device, _is_device)
    _check_ids(chosen, options)
    return [row for mine in by_operator(chosen).values() for row in _of_inputs(mine, options)]


def _given(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


def _named(
    rows: Sequence[Row],
    option: str,
    names: Sequence[str],
    name_of: Callable[[Row], str],
    is_meant: Callable[[Row, str], bool],
) -> list[Row]:
    """Rows that one of the names means; all if there are no names."""
    for name in names:
        if not any(is_meant(row, name) for row in rows):
            known = list(dict.fromkeys(map(name_of, rows)))
            raise PlanError(f"{option} {name}: no row of the file; {suggest(name, known)}")
    return [row for row in rows if not names or any(is_meant(row, name) for name in names)]


def _is_operator(row: Row, pattern: str) -> bool:
    return fnmatchcase(row.operator, pattern)


def _is_dtype(row: Row, name: str) -> bool:
    return row.dtype == name


def _is_device(row: Row, name: str) -> bool:
    return row.device == name


def _is_meant(row: Row, pattern: str) -> bool:
    """As in a plan; what kind of implementation it is shows in its name."""
    kind = Kind.HELION if row.implementation.startswith(HELION) else Kind.FUNCTION
    if row.owner is Owner.OURS:
        kind = Kind.TUNED if row.implementation.endswith("_tuned") else Kind.DEFAULT
    return Implementation(row.implementation, kind).answers_to(pattern)


def _check_ids(rows: Sequence[Row], options: Options) -> None:
    there = sorted({row.input_id for row in rows})
    wrong = [number for number in options.input_ids if number not in there]
    if wrong:
        known = ", ".join(map(str, there))
        raise PlanError(f"--input-id {wrong[0]}: no row of the file; there are inputs {known}")


def _of_inputs(rows: Sequence[Row], options: Options) -> list[Row]:
    """Rows of one operator with the inputs that were asked for."""
    there = sorted({row.input_id for row in rows})
    ids = options.input_ids
    if len(set(ids)) == 1 and options.num_inputs is not None:
        there = [number for number in there if number >= ids[0]]
    elif ids:
        there = [number for number in dict.fromkeys(ids) if number in there]
    kept = there[: options.num_inputs]
    return [row for row in rows if row.input_id in kept]
