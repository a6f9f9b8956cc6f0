"""Lets kernels whose programs wait for each other run on few streams of a device at a time.

Such a kernel keeps fewer than ``MOST_IN_GROUP`` programs waiting for one that has not started. With
as many kernels at once as have a multiprocessor for each of those, and one more, the one that is
waited for always finds a place. With more they could fill the device and wait for ever. So a launch
on yet another stream waits until the last such launch of the stream that is longest without one has
ended. Streams in use up to that number, most often one, are not held up.
"""

from __future__ import annotations

from functools import cache
from threading import RLock
from typing import Any, Protocol

import torch
from typing_extensions import override

from tilesmith.ir.ops.control_flow import MOST_IN_GROUP
from tilesmith.runtime.device import is_numbered
from tilesmith.runtime.generated import get_num_sm
from tilesmith.runtime.launchers.triton import TritonLauncher
from tilesmith.runtime.launchers.unloading import DEFAULT, stream_finder


class Streams(Protocol):
    """What is asked of the streams of one device."""

    def current(self) -> int:
        """The stream that launches go to now."""
        ...

    def is_recording(self) -> bool:
        """Whether that stream records a graph: nothing runs then."""
        ...

    def mark(self, event: Any) -> Any:
        """An event behind all that was launched on the current stream; the one given if any."""
        ...

    def mark_default(self) -> Any:
        """The same for the default stream."""
        ...

    def wait_for(self, event: Any) -> None:
        """The current stream goes on only after the event."""
        ...


class DeviceStreams(Streams):
    """Those of torch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._find = stream_finder()

    @override
    def current(self) -> int:
        return self._find(self._device.index)

    @override
    def is_recording(self) -> bool:
        with torch.cuda.device(self._device):
            return torch.cuda.is_current_stream_capturing()

    @override
    def mark(self, event: Any) -> Any:
        return torch.cuda.current_stream(self._device).record_event(event)

    @override
    def mark_default(self) -> Any:
        return torch.cuda.default_stream(self._device).record_event()

    @override
    def wait_for(self, event: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)


class Turns:
    """A context in which such a kernel is launched on the current stream.

    One thread at a time: between the decision and the launch nobody else may decide.
    """

    def __init__(self, most: int, streams: Streams) -> None:
        self._most = most
        self._streams = streams
        self._lock = RLock()
        self._now = DEFAULT
        self._ends: dict[int, Any] = {}
        """For each stream an event behind its last such launch; the newest stream last."""

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._now = self._streams.current()
            self._take(self._now)
        except BaseException:
            self._lock.release()
            raise

    def _take(self, stream: int) -> None:
        ends = self._ends
        if stream in ends:
            if len(ends) > 1:
                ends[stream] = ends.pop(stream)
            return
        # The default one is always there: it needs no event before another has to wait for it.
        if stream != DEFAULT and self._streams.is_recording():
            return
        if len(ends) >= self._most:
            event = ends.pop(next(iter(ends)))
            self._streams.wait_for(self._streams.mark_default() if event is None else event)
        ends[stream] = None

    def __exit__(self, *_: object) -> None:
        try:
            stream = self._now
            if stream != DEFAULT and stream in self._ends and not self._streams.is_recording():
                self._ends[stream] = self._streams.mark(self._ends[stream])
        finally:
            self._lock.release()


@cache
def turns_of(device: torch.device) -> Turns:
    """Those of a device with a number."""
    most = max(1, (get_num_sm(device) - 1) // (MOST_IN_GROUP - 1))
    return Turns(most, DeviceStreams(device))


def in_turn(launcher: TritonLauncher, device: torch.device) -> TritonLauncher:
    """The launcher; if programs of its kernels wait for each other its launches take turns."""
    launch, artifact = launcher.launch, launcher.artifact
    if device.type != "cuda" or not any(x.least_sms for x in (artifact, *artifact.before)):
        return launcher
    known = turns_of(device) if is_numbered(device) else None

    def launched(*values: Any) -> None:
        with known or turns_of(torch.device("cuda", torch.cuda.current_device())):
            launch(*values)

    launcher.launch = launched
    return launcher
