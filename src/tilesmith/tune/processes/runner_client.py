"""A child that comes back: after a death it is started again and prepared as it was before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from tilesmith.tune.processes.child import START_TIMEOUT_S, ChildProcess
from tilesmith.tune.processes.failures import ChildDied, ChildError, ChildTimeout, RunnerUnavailable
from tilesmith.tune.processes.messages import ErrorReply


class RunnerClient(ChildProcess):
    """Asks a runner and survives it.

    ChildDied and ChildTimeout are then about the job that was asked for; that a runner cannot be
    started or prepared any more is RunnerUnavailable. What a runner was told by ``request`` is
    forgotten with its process: ``num_starts`` tells one process from the next.
    """

    def __init__(
        self,
        module: str,
        *,
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        is_bare: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(
            module,
            environment=environment,
            start_timeout_s=start_timeout_s,
            is_bare=is_bare,
            arguments=arguments,
        )
        self._preparations: dict[str, tuple[object, float]] = {}
        self._prepared_start = 0

    @property
    def num_restarts(self) -> int:
        """How often it had to be started again."""
        return max(0, self.num_starts - 1)

    def prepare(self, job: object, timeout_s: float, *, slot: str = "workload") -> Any:
        """Ask a job whose effect every later process needs too; a new one replaces its slot.

        It is repeated after a restart only if it was answered, and not with an ErrorReply.
        """
        self._preparations.pop(slot, None)
        reply = self.request(job, timeout_s)
        if not isinstance(reply, ErrorReply):
            self._preparations[slot] = (job, timeout_s)
        return reply

    def forget_preparations(self) -> None:
        """Let later processes start as if nothing had been prepared."""
        self._preparations.clear()

    @override
    def request(self, job: object, timeout_s: float) -> Any:
        """The reply to a job, by a prepared process."""
        self._bring_up()
        try:
            reply = super().request(job, timeout_s)
        except (ChildDied, ChildTimeout):
            self.start()
            raise
        self.start()  # if it was its last reply, its successor imports while the caller goes on
        return reply

    def _bring_up(self) -> None:
        failure = self._try_to_bring_up() and self._try_to_bring_up()
        if failure is not None:
            raise RunnerUnavailable(str(failure)) from failure

    def _try_to_bring_up(self) -> ChildError | None:
        try:
            self.await_ready()
            self._repeat_preparations()
        except ChildError as failure:
            self.kill()
            return failure
        return None

    def _repeat_preparations(self) -> None:
        if self._prepared_start == self.num_starts:
            return
        for job, timeout_s in self._preparations.values():
            reply = super().request(job, timeout_s)
            if isinstance(reply, ErrorReply):
                raise RunnerUnavailable(f"preparing it again failed: {reply.reason}")
        self._prepared_start = self.num_starts
