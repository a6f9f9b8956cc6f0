"""Artifacts that begin with others: what each launch is given. Launching itself is a fake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.runtime.arguments import LaunchOptions
from tilesmith.runtime.launchers.in_order import triton_launcher
from tilesmith.runtime.launchers.triton import TritonLauncher

Log = list[tuple[str, dict[str, Any]]]
MADE = "torch.empty((2, 3), dtype=torch.bfloat16, device=x.device)"
X, W, SCRATCH = (
    LaunchParameter(name, source, True, "bf16")
    for name, source in (("x", "x"), ("w", "holder['w']"), ("scratch", MADE))
)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What was launched, with the value of each parameter."""
    found: Log = []

    def init(
        self: Any, artifact: Artifact, captured: Any, constants: Any, options: Any, *plain: Any
    ):
        assert options.owner == 0 or not artifact.before
        self.artifact, self.plain = artifact, plain

        def launch(*values: Any) -> None:
            names = dict(zip(captured, values, strict=True))
            scope = {"torch": torch, "__constants__": tuple(constants)}
            given = {p.name: eval(p.source, scope, names) for p in artifact.parameters}
            found.append((artifact.name, given))

        self.launch = launch

    monkeypatch.setattr(TritonLauncher, "__init__", init)
    return found


def artifact(*before: Artifact) -> Artifact:
    return Artifact("main", "", (X, W, SCRATCH), (), ("1",), before=before)


def options(owner: int = 0) -> LaunchOptions:
    return LaunchOptions(Path("."), torch.device("cpu"), owner=owner)


FIRST = Artifact("first", "", (W, LaunchParameter("scratch", "scratch", True, "bf16")), (), ("1",))


def test_both_launches_get_the_same_memory_in_order(log: Log) -> None:
    launcher = triton_launcher(artifact(FIRST), ["x", "holder"], (), options(owner=7))
    x, w = torch.zeros(1), torch.ones(1)
    launcher.launch(x, {"w": w})
    (first, given), (second, own) = log
    assert (first, second) == ("first", "main")
    assert given["w"] is w
    assert own["w"] is w
    assert own["x"] is x
    assert given["scratch"] is own["scratch"]
    assert given["scratch"].shape == (2, 3)


def test_memory_is_made_anew_in_each_call(log: Log) -> None:
    launcher = triton_launcher(artifact(FIRST), ["x", "holder"], (), options())
    for _ in range(2):
        launcher.launch(torch.zeros(1), {"w": torch.ones(1)})
    assert log[1][1]["scratch"] is not log[3][1]["scratch"]


def test_renamed_parameters_are_found_by_their_names(log: Log) -> None:
    slots = {"x": "value_0", "w": "value_1", "scratch": "value_2"}
    parameters = tuple(
        LaunchParameter(p.name, slots[p.name], True, "bf16") for p in artifact().parameters
    )
    renamed = Artifact("main", "", parameters, (), ("1",), before=(FIRST,))
    values = [torch.zeros(1) for _ in range(3)]
    triton_launcher(renamed, list(slots.values()), (), options()).launch(*values)
    assert log[0][1]["w"] is values[1]
    assert log[0][1]["scratch"] is log[1][1]["scratch"] is values[2]


def test_a_plain_launcher_is_given_what_was_captured(log: Log) -> None:
    seen: list[Any] = []
    launcher: Any = triton_launcher(
        artifact(FIRST), ["x", "holder"], (), options(), lambda: lambda *values: seen.extend(values)
    )
    (make_plain,) = launcher.plain
    make_plain()("x", "holder", "scratch")
    assert seen == ["x", "holder"]


def test_one_launch_stays_as_it_is(log: Log) -> None:
    triton_launcher(artifact(), ["x", "holder"], (), options(owner=7)).launch(
        torch.zeros(1), {"w": torch.ones(1)}
    )
    assert [name for name, _ in log] == ["main"]


def test_host_code_may_use_the_name_of_what_is_made(log: Log) -> None:
    launcher = triton_launcher(artifact(FIRST), ["x", "holder", "scratch"], (), options())
    launcher.launch(torch.zeros(1), {"w": torch.ones(1)}, "a variable of host code")
    assert log[0][1]["scratch"] is log[1][1]["scratch"]
    assert log[1][1]["scratch"].shape == (2, 3)


def test_where_the_first_launch_has_a_tensor_that_it_cannot_describe_another_kernel_does_all(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = TritonLauncher.__init__

    def refusing(self: Any, item: Artifact, captured: Any, *others: Any) -> None:
        init(self, item, captured, *others)
        if item.name == "first":
            give_up = others[2]
            self.launch = lambda *_: give_up()

    monkeypatch.setattr(TritonLauncher, "__init__", refusing)
    monkeypatch.setattr(
        TritonLauncher, "_launch_plain", lambda self, *values: self.plain[0]()(*values)
    )
    plain: list[Any] = []
    launcher = triton_launcher(
        artifact(FIRST),
        ["x", "holder"],
        (),
        options(),
        lambda: lambda *values: plain.append(values),
    )
    launcher.launch(torch.zeros(1), {"w": torch.ones(1)})
    ((x, holder),) = plain
    assert x.shape == (1,)
    assert set(holder) == {"w"}
    assert not log
