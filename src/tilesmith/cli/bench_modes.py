"""Options of ``tilesmith bench`` that do not go together: none is passed over in silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from tilesmith.cli.forms import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FLAGS = {"load": "--from", "is_list": "--list", "cudagraph": "--cudagraph or --no-cudagraph"}
"""Those that are not called as their field."""
SHOWN = ("metrics", "csv", "json", "html", "png", "quiet")
CHOOSING = ("kernel", "input_shard", "num_inputs", "input_id", "only", "dtype", "device")
USES = {
    "launch": ("device",),
    "load": (*CHOOSING, *SHOWN),
}
"""What each way not to run anything looks at."""
WHY = {
    "launch": "it times calls of its own kernels",
    "load": "it shows rows as they were measured",
}


def check_modes(form: DataclassInstance) -> None:
    """UsageError if something was asked for that would not be looked at."""
    for mode, used in USES.items():
        if not getattr(form, mode):
            continue
        ignored = [name for name in _given(form) if name not in (mode, *used)]
        if ignored:
            names = ", ".join(map(flag_of, ignored))
            raise UsageError(f"{flag_of(mode)} does not go with {names}: {WHY[mode]}; leave it out")


def flag_of(name: str) -> str:
    """The option of a field.

    Example:
        >>> flag_of("num_inputs"), flag_of("load")
        ('--num-inputs', '--from')
    """
    return FLAGS.get(name) or f"--{name.replace('_', '-')}"


def _given(form: DataclassInstance) -> Iterator[str]:
    """Fields that are not as they are if nothing is said."""
    for item in fields(form):
        value = getattr(form, item.name)
        if value not in (item.default, []):
            yield item.name
