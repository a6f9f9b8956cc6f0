"""A default config that does not build is replaced by the next, and the user is told."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

import tilesmith.exc as errors
from tilesmith.backends.table import BACKENDS
from tilesmith.diagnostics.kernel_warnings import WarningLog
from tilesmith.jit.executables import Fallback
from tilesmith.jit.launchers import LAUNCHERS
from tilesmith.runtime.arguments import Launcher, compile_choice
from tilesmith.schedule.config import Config

FIRST, SECOND, THIRD = (Config(block_sizes=[size]) for size in (256, 64, 16))


class Maker:
    """Makes launchers of which some fail, when made or when launched."""

    def __init__(self, *, unmade: tuple[Config, ...] = (), unbuilt: tuple[Config, ...] = ()):
        self.unmade, self.unbuilt = unmade, unbuilt
        self.launched: list[tuple[Config, tuple[int, ...]]] = []
        self.asked_for_others = 0

    def make(self, config: Config):
        if config in self.unmade:
            raise errors.InvalidConfig(problem=f"no {config.block_sizes[0]}")

        def launch(*values: int) -> None:
            if config in self.unbuilt:
                raise errors.TritonError(function="k", problem="out of resource: shared memory")
            self.launched.append((config, values))

        return launch

    def others(self) -> Iterator[Config]:
        self.asked_for_others += 1
        return iter((FIRST, SECOND, THIRD))


def refuse(*values: int) -> None:
    raise AssertionError(values)


def launcher(maker: Maker, *names: str) -> tuple[Launcher, io.StringIO]:
    stream = io.StringIO()
    fallback = Fallback(FIRST, maker.others, maker.make, WarningLog(stream=stream))
    launch = compile_choice(names or ("n",), (), (), fallback.advance(), refuse, fallback.replace)
    return launch, stream


def test_a_config_that_builds_is_used_and_nothing_else_is_looked_for():
    maker = Maker()
    made, stream = launcher(maker, "m", "n")
    made(1, 2)
    assert maker.launched == [(FIRST, (1, 2))]
    assert not maker.asked_for_others
    assert not stream.getvalue()


def test_a_build_that_fails_at_launch_is_replaced_once_and_for_all():
    maker = Maker(unbuilt=(FIRST,), unmade=(SECOND,))
    made, stream = launcher(maker)
    made(7)
    made(8)
    assert maker.launched == [(THIRD, (7,)), (THIRD, (8,))]
    text = stream.getvalue()
    assert text.count("WARNING[ConfigReplaced]") == 1
    assert "out of resource: shared memory" in text
    assert "block_sizes=[256]" in text
    assert "block_sizes=[16]" in text


def test_a_config_that_cannot_be_emitted_is_replaced_at_once():
    maker = Maker(unmade=(FIRST,))
    made, stream = launcher(maker)
    assert "no 256" in stream.getvalue()
    made(1)
    assert maker.launched == [(SECOND, (1,))]


def test_when_nothing_builds_the_first_failure_is_raised():
    made, _ = launcher(Maker(unbuilt=(FIRST, SECOND, THIRD)))
    with pytest.raises(errors.TritonError, match="out of resource"):
        made(1)
    with pytest.raises(errors.InvalidConfig, match="no 256"):
        launcher(Maker(unmade=(FIRST, SECOND, THIRD)))


def test_a_form_that_fails_later_is_replaced_too():
    maker = Maker()
    made, stream = launcher(maker)
    made(1)
    maker.unbuilt = (FIRST,)
    made(2)
    assert maker.launched == [(FIRST, (1,)), (SECOND, (2,))]
    assert "WARNING[ConfigReplaced]" in stream.getvalue()


def test_threads_that_see_one_failure_agree_on_the_replacement():
    maker = Maker()
    fallback = Fallback(FIRST, maker.others, maker.make, WarningLog(stream=io.StringIO()))
    failed, problem = fallback.advance(), errors.TritonError(function="k", problem="too large")
    taken = [fallback.replace(failed, problem) for _ in range(3)]
    assert len(set(map(id, taken))) == 1
    taken[0](5)
    assert maker.launched == [(SECOND, (5,))]


def test_guards_come_before_the_launcher_and_its_replacements():
    maker = Maker(unbuilt=(FIRST,))
    fallback = Fallback(FIRST, maker.others, maker.make, WarningLog(stream=io.StringIO()))
    others: list[int] = []
    launch = compile_choice(
        ["n"], [("n > 3", True)], (), fallback.advance(), others.append, fallback.replace
    )
    for n in (1, 4, 2, 5):
        launch(n)
    assert others == [1, 2]
    assert maker.launched == [(SECOND, (4,)), (SECOND, (5,))]


def test_every_backend_has_a_launcher():
    """Its own, or one of ``jit`` by its name."""
    for backend in BACKENDS.backends:
        assert (backend.launch is None) == (backend.name in LAUNCHERS), backend.name
