"""Frames arrive whole and in order, or it is said why not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from time import monotonic

import pytest

from tilesmith.lab.processes.channel import (
    MARK,
    Channel,
    ChannelClosed,
    NotAFrame,
    UnreadableMessage,
    decode,
    encode,
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    left, right = (Channel(end) for end in socket.socketpair())
    yield left, right
    left.close()
    right.close()


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, Channel]]:
    end, other = socket.socketpair()
    channel = Channel(other)
    yield end, channel
    end.close()
    channel.close()


@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 4096, (1 << 20) + 1])
def test_a_payload_arrives_unchanged(ends: tuple[Channel, Channel], size: int):
    left, right = ends
    payload = bytes(range(256)) * (size // 256 + 1)
    thread = threading.Thread(target=lambda: left.send(payload[:size], 5.0))
    thread.start()
    assert right.receive(5.0) == payload[:size]
    thread.join()
    assert not left.is_sending


def test_frames_keep_their_order_and_borders(ends: tuple[Channel, Channel]):
    left, right = ends
    for length in range(50):
        left.post(b"x" * length)
    assert [len(right.receive(1.0)) for _ in range(50)] == list(range(50))


def test_both_sides_may_send_long_frames_at_once(ends: tuple[Channel, Channel]):
    payload = b"x" * (4 << 20)

    def exchange(channel: Channel) -> None:
        channel.send(payload, 5.0)
        received.append(channel.receive(5.0))

    received: list[bytes] = []
    threads = [threading.Thread(target=exchange, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert received == [payload, payload]


def test_a_frame_that_comes_in_pieces_is_put_together(raw: tuple[socket.socket, Channel]):
    end, channel = raw
    for byte in MARK + (3).to_bytes(8, "little") + b"abc":
        assert channel.take() is None
        end.send(bytes([byte]))
        channel.pump()
    assert channel.take() == b"abc"
    assert channel.take() is None


def test_receiving_ends_at_its_deadline_and_loses_nothing(raw: tuple[socket.socket, Channel]):
    end, channel = raw
    end.send(MARK + (3).to_bytes(8, "little") + b"a")
    start = monotonic()
    with pytest.raises(TimeoutError):
        channel.receive(0.05)
    assert 0.05 <= monotonic() - start < 1.0
    end.send(b"bc")
    assert channel.receive(1.0) == b"abc"


def test_sending_ends_at_its_deadline(ends: tuple[Channel, Channel]):
    with pytest.raises(TimeoutError):
        ends[0].send(b"x" * (8 << 20), 0.05)


def test_what_was_sent_before_the_end_is_received(ends: tuple[Channel, Channel]):
    left, right = ends
    left.post(b"first")
    left.close()
    assert right.receive(1.0) == b"first"
    with pytest.raises(ChannelClosed):
        right.receive(1.0)


def test_sending_to_nobody_is_noticed(ends: tuple[Channel, Channel]):
    left, right = ends
    right.post(b"farewell")
    right.close()
    left.post(b"short")
    with pytest.raises(ChannelClosed):
        left.send(b"x" * (8 << 20), 1.0)
    assert left.receive(1.0) == b"farewell"


def test_half_a_frame_is_no_frame(raw: tuple[socket.socket, Channel]):
    end, channel = raw
    end.send(MARK + (30).to_bytes(8, "little") + b"a")
    end.close()
    with pytest.raises(ChannelClosed):
        channel.receive(1.0)


@pytest.mark.parametrize("text", [b"x", b"TSF", b"TS-1 and more", b"Warning: something\n"])
def test_garbage_is_noticed_at_once(raw: tuple[socket.socket, Channel], text: bytes):
    end, channel = raw
    end.send(text)
    with pytest.raises(NotAFrame if text != b"TSF" else TimeoutError):
        channel.receive(0.05)


def test_using_a_closed_channel_is_its_end(ends: tuple[Channel, Channel]):
    left, _ = ends
    left.close()
    left.close()
    left.post(b"lost")
    with pytest.raises(ChannelClosed):
        left.receive(1.0)


def test_messages_survive_their_encoding():
    message = {"a": (1, 2.5, None), "b": [b"x"]}
    assert decode(encode(message)) == message


def test_a_message_that_cannot_be_read_is_said_to_be():
    payload = encode(UnreadableMessage("x")).replace(b"UnreadableMessage", b"UnheardOfMessage.")
    with pytest.raises(UnreadableMessage, match="AttributeError"):
        decode(payload)
