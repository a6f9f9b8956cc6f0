"""A default config that does not build is replaced by the next, and the user is told."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.warning_log import WarningLog
from tilesmith.jit.fallback import FallbackLauncher
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


def launcher(maker: Maker) -> tuple[FallbackLauncher, io.StringIO]:
    stream = io.StringIO()
    return FallbackLauncher(FIRST, maker.others, maker.make, WarningLog(stream=stream)), stream


def test_a_config_that_builds_is_used_and_nothing_else_is_looked_for():
    maker = Maker()
    made, stream = launcher(maker)
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
