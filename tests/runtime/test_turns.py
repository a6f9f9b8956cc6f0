"""Kernels whose programs wait for each other: never more of them at once than have room."""

from __future__ import annotations

from collections import deque
from random import Random
from threading import Thread
from typing import Any

import pytest

from tilesmith.runtime.launchers.turns import Turns

WAITING = 31
"""Programs of one kernel that may wait for another of its own."""


class Device:
    """Streams as queues of kernels, marks and waits; kernels run as an adversary would let them."""

    def __init__(self) -> None:
        self.now = 0
        self.queues: dict[int, deque[tuple[str, Any]]] = {}
        self.recording = False
        self.asked = 0
        self._marked: dict[int, int] = {}
        """Marks that are still to be reached, by event."""

    def _put(self, stream: int, kind: str, what: Any = None) -> None:
        self.queues.setdefault(stream, deque()).append((kind, what))

    def current(self) -> int:
        return self.now

    def is_recording(self) -> bool:
        self.asked += 1
        return self.recording

    def mark(self, event: Any) -> Any:
        # A wait means the newest mark at that time.
        new = [event, len(self._marked)]
        self._marked[new[1]] = 1
        self._put(self.now, "mark", new[1])
        return new

    def mark_default(self) -> Any:
        now, self.now = self.now, 0
        found = self.mark(None)
        self.now = now
        return found

    def wait_for(self, event: Any) -> None:
        self._put(self.now, "wait", event[1])

    def launch(self, turns: Turns, stream: int) -> None:
        self.now = stream
        with turns:
            self._put(stream, "kernel")

    def run(self, random: Random, num_sms: int) -> int:
        """How many kernels were at work at once; fails where their programs fill the device."""
        most, running = 0, set[int]()
        while any(self.queues.values()):
            before = -1
            while before != (before := self._advance(running)):
                pass
            most = max(most, len(running))
            assert WAITING * len(running) < num_sms, "they wait for what finds no place"
            if any(self.queues.values()):
                ended = random.choice(sorted(running))
                running.remove(ended)
                self.queues[ended].popleft()
        return most

    def _advance(self, running: set[int]) -> int:
        """Start all that may start; a number that changes as long as something does."""
        for stream, queue in self.queues.items():
            while queue and stream not in running:
                kind, what = queue[0]
                if kind == "kernel":
                    running.add(stream)
                elif kind == "mark" or what not in self._open():
                    queue.popleft()
                else:
                    break
        return sum(map(len, self.queues.values())) * 100 + len(running)

    def _open(self) -> set[int]:
        return {what for queue in self.queues.values() for kind, what in queue if kind == "mark"}


@pytest.mark.parametrize("num_sms", [64, 108, 132])
@pytest.mark.parametrize("num_streams", [1, 2, 4, 5, 9])
def test_kernels_on_any_number_of_streams_leave_room(num_streams: int, num_sms: int) -> None:
    most = (num_sms - 1) // WAITING
    for seed in range(30):
        random, device = Random(seed), Device()
        turns = Turns(most, device)
        for _ in range(60):
            device.launch(turns, random.randrange(num_streams))
        assert device.run(random, num_sms) <= most


def test_without_turns_more_streams_than_have_room_fill_the_device() -> None:
    device = Device()
    turns = Turns(99, device)
    for stream in range(5):
        device.launch(turns, stream)
    with pytest.raises(AssertionError, match="no place"):
        device.run(Random(0), 132)


def test_few_streams_wait_for_nothing_and_one_asks_for_nothing() -> None:
    device = Device()
    turns = Turns(4, device)
    for _ in range(3):
        device.launch(turns, 0)
    assert list(device.queues[0]) == [("kernel", None)] * 3
    assert not device.asked
    for stream in (1, 2, 3, 1, 0):
        device.launch(turns, stream)
    assert not [x for queue in device.queues.values() for x in queue if x[0] == "wait"]


def test_what_is_recorded_is_left_alone() -> None:
    device = Device()
    turns = Turns(1, device)
    device.launch(turns, 0)
    device.recording = True
    device.launch(turns, 7)
    assert list(device.queues[7]) == [("kernel", None)]


def test_a_launch_that_raises_leaves_the_turn_to_others() -> None:
    device = Device()
    turns = Turns(1, device)
    with pytest.raises(ZeroDivisionError), turns:
        _ = 1 / 0
    other = Thread(target=device.launch, args=(turns, 3), daemon=True)
    other.start()
    other.join(timeout=30)
    assert not other.is_alive()
