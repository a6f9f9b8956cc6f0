"""A worker of a Ray cluster as a lane: timings by an actor that owns a device, builds by tasks.

A lost actor, or one that does not answer, is a lost lane: no candidate is blamed for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from tilesmith.backends.interface import TuningNeeds
from tilesmith.fleet.node import build
from tilesmith.fleet.parcels import Answer, Facts, parcel_name, paths_in
from tilesmith.fleet.work import FleetError, Kind
from tilesmith.lab.processes.build_pool import BuildOutcome
from tilesmith.lab.processes.channel import (
    ChildDied,
    ChildError,
    ChildTimeout,
    ChildUnavailable,
    ErrorReply,
    decode,
    encode,
)
from tilesmith.store.lookup import toolchain
from tilesmith.tune.jobs import CheckJob
from tilesmith.tune.options import TuneOptions

ANSWER_GRACE_S = 30.0
"""Beyond a job's own timeout, which its worker watches: then the worker itself hangs."""
START_S = 120.0
"""For an actor to be placed and to import torch."""
REVIVE_S = 600.0
"""How long a lost lane waits for another worker while there is work for it."""
POLL_S = 0.5
QUEUE_S = 120.0
"""Beyond its own timeout a build may wait for a free core."""
MAX_RETRIES = 2
"""Of a build whose node was lost."""


class RayLane:
    """One actor, and after its loss another."""

    def __init__(self, ray: Any, make_actor: Callable[[], Any], device: str, num_jobs: int) -> None:
        self._ray, self._make_actor = ray, make_actor
        self.loss = ""
        self.actor: Any = make_actor()
        self._facts: Facts | None = None
        self._name = ""
        self.place = RayPlace(ray, self, device, num_jobs)

    @property
    def facts(self) -> Facts:
        """What the worker says about itself; FleetError if it does not come up or is unlike us."""
        if self._facts is None:
            self._facts = self._describe(START_S)
        return self._facts

    def find_problem(self) -> str:
        """Why it cannot be used; empty if it can."""
        try:
            self._facts = self.facts
        except FleetError as error:
            return str(error)
        return ""

    @property
    def name(self) -> str:
        """For people."""
        self._name = self._name or f"{self.facts.node}/{self.actor._actor_id.hex()[:6]}"
        return self._name

    @property
    def kind(self) -> Kind:
        """What it measures on."""
        return Kind(self.facts.target, self.facts.device)

    def ask(self, call: Callable[[Any], Any], timeout_s: float) -> Any:
        """The answer of the actor; ChildUnavailable, and a lost lane, if none comes."""
        if self.loss:
            raise ChildUnavailable(self.loss)
        lost = self._ray.exceptions
        try:
            return self._ray.get(call(self.actor), timeout=timeout_s + ANSWER_GRACE_S)
        except lost.GetTimeoutError:
            self._lose(f"no answer within {timeout_s + ANSWER_GRACE_S:g} s")
        except (lost.RayActorError, lost.ObjectLostError, lost.RaySystemError) as error:
            self._lose(_first_line(error))
        raise ChildUnavailable(self.loss)

    def revive(self, is_wanted: Callable[[], bool]) -> bool:
        """Wait for another worker of the same kind, as long as there is work for it."""
        known = self.facts
        self.actor = self._make_actor()
        coming, end = self.actor.describe.remote(), monotonic() + REVIVE_S
        while is_wanted() and monotonic() < end:
            if not self._ray.wait([coming], timeout=POLL_S)[0]:
                continue
            with suppress(FleetError):
                found = self._describe(START_S)
                # Of another kind its times would be told under the wrong name.
                if (found.target, found.device) == (known.target, known.device):
                    self.loss = ""
                    return True
            break
        self.close()
        return False

    def close(self) -> None:
        """Free the device."""
        self._ray.kill(self.actor)

    def _lose(self, reason: str) -> None:
        self.loss = reason
        self._ray.kill(self.actor)

    def _describe(self, timeout_s: float) -> Facts:
        try:
            facts: Facts = self._ray.get(self.actor.describe.remote(), timeout=timeout_s)
        except self._ray.exceptions.RayError as error:
            raise FleetError(f"a worker does not come up: {_first_line(error)}") from None
        ours, theirs = dict(toolchain()), dict(facts.toolchain)
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                there, here = theirs.get(name, "none"), ours.get(name, "none")
                raise FleetError(
                    f"{facts.node} has {name} {there}, this machine {here}: times would be told "
                    "under the wrong versions; install the same on both"
                )
        return facts


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    shown = next((line for line in lines if "Error" in line or "died" in line), "")
    return shown or (lines[0] if lines else type(error).__name__)


class RayPlace:
    """The processes of a search in a cluster."""

    def __init__(self, ray: Any, lane: RayLane, device: str, num_jobs: int) -> None:
        self.device = device
        self._ray, self._lane, self._num_jobs = ray, lane, num_jobs
        self.built: dict[str, Any] = {}
        """The files of programs, as references: they go from node to node, not by way of us."""

    def num_jobs(self, options: TuneOptions) -> int:
        """The lane's share of the cluster's cores."""
        return options.build_jobs or self._num_jobs

    def start_runner(self, options: TuneOptions, device: str) -> RemoteRunner:
        """The actor, as a process."""
        return RemoteRunner(self._ray, self._lane, self.built)

    def end_runner(self, process: Any, *, is_as_new: bool) -> None:
        """The actor stays with its lane. One that ran something harmful starts its child anew."""
        process.release()
        self.built.clear()

    def start_pool(self, options: TuneOptions, needs: TuningNeeds) -> RayPool:
        """Tasks of the cluster."""
        return RayPool(self._ray, self.built, options.settings.autotune_compile_timeout)

    def end_pool(self, pool: Any) -> None:
        """Tasks end by themselves."""


class RemoteRunner:
    """A runner behind an actor; fails as a ``RestartingChild`` does."""

    def __init__(self, ray: Any, lane: RayLane, built: dict[str, Any]) -> None:
        self._ray, self._lane, self._built = ray, lane, built
        self.start_timeout_s = START_S
        self.num_starts = 1
        self.ready_at = monotonic()
        self._ahead: tuple[object, Any] | None = None
        self._nothing = ray.put({})

    @property
    def is_ready(self) -> bool:
        """Whether its worker was not lost."""
        return not self._lane.loss

    is_alive = is_ready

    def start(self) -> None:
        """The actor has started its child."""

    def await_ready(self) -> None:
        """Only a lost lane is not ready, and it does not come back by waiting."""
        if self._lane.loss:
            raise ChildUnavailable(self._lane.loss)

    def send_ahead(self, job: object) -> None:
        """Begin with a job."""
        if not self._lane.loss:
            self._ahead = (job, self._send_preparation(job, self.start_timeout_s))

    def prepare(self, job: object, timeout_s: float) -> Any:
        """A job that later processes need too."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is job:
            return self._read(self._lane.ask(lambda _: ahead[1], timeout_s))
        return self._read(
            self._lane.ask(lambda _: self._send_preparation(job, timeout_s), timeout_s)
        )

    def _send_preparation(self, job: object, timeout_s: float) -> Any:
        files = self._ray.put(_files_of(job))
        return self._lane.actor.prepare.remote(encode(job), files, timeout_s)

    def forget_preparation(self) -> None:
        """Let later processes start as if nothing had been prepared."""
        if not self._lane.loss:
            self._lane.actor.forget_preparation.remote()

    def request(self, job: object, timeout_s: float) -> Any:
        """Any other job."""
        files = _files_of(job)
        built = self._nothing
        if isinstance(job, CheckJob):
            built = self._built.get(job.program.key, self._nothing)

        def send(actor: Any) -> Any:
            given = self._ray.put(files) if files else self._nothing
            return actor.request.remote(encode(job), given, built, timeout_s)

        return self._read(self._lane.ask(send, timeout_s))

    def close(self) -> None:
        """The actor belongs to its lane."""

    def release(self) -> None:
        """Nothing of this search is wanted any more."""
        self._ahead = None

    def _read(self, answer: bytes) -> Any:
        found: Answer = decode(answer)
        self.num_starts = found.num_starts
        if isinstance(found.reply, ChildError):
            raise found.reply
        return found.reply


def _files_of(job: object) -> dict[str, bytes]:
    return {parcel_name(path): path.read_bytes() for path in paths_in(job)}


class RayPool:
    """Builds as tasks of the cluster, which repeats those whose node was lost."""

    def __init__(self, ray: Any, built: dict[str, Any], timeout_s: float) -> None:
        self._ray, self._built, self._timeout_s = ray, built, timeout_s
        options = {"num_cpus": 1, "num_returns": 2, "max_retries": MAX_RETRIES}
        self._build = ray.remote(**options)(build)
        self._waiting: dict[Any, tuple[str, float]] = {}

    def submit(self, key: str, job: object) -> None:
        """Have a program built anywhere."""
        reply, files = self._build.remote(encode(job))
        self._built[key] = files
        self._waiting[reply] = (key, monotonic())

    def wait(self, timeout_s: float) -> list[BuildOutcome]:
        """What is done, or failed, or took too long."""
        if not self._waiting:
            return []
        done, _ = self._ray.wait(list(self._waiting), num_returns=len(self._waiting), timeout=0.0)
        if not done:
            done, _ = self._ray.wait(list(self._waiting), timeout=timeout_s)
        return [*map(self._take, done), *self._late()]

    def cancel_all(self) -> None:
        """Forget all builds, which run to their end.

        Ray 2.60 aborts the driver where a task is cancelled that is just being answered.
        """
        self._waiting.clear()

    def _take(self, reference: Any) -> BuildOutcome:
        key, started = self._waiting.pop(reference)
        lost = self._ray.exceptions
        try:
            reply = self._ray.get(reference)
        except (lost.WorkerCrashedError, lost.NodeDiedError) as error:
            reply = ChildDied(-9, note=_first_line(error))
        except lost.RayError as error:
            reply = ErrorReply(type(error).__name__, _first_line(error))
        return BuildOutcome(key, reply, monotonic() - started, monotonic())

    def _late(self) -> list[BuildOutcome]:
        limit, now = self._timeout_s + QUEUE_S, monotonic()
        late = [r for r, (_, started) in self._waiting.items() if now - started > limit]
        for reference in late:  # it hangs: nothing else frees its core
            self._ray.cancel(reference, force=True)
        taken = [self._waiting.pop(reference) for reference in late]
        return [BuildOutcome(key, ChildTimeout(limit), limit, now) for key, _ in taken]


def has_gpus(ray: Any) -> bool:
    """Whether a node of the cluster has one."""
    return ray.cluster_resources().get("GPU", 0) >= 1
