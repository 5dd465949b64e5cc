"""Messages between worker and coordinator: what was sent arrives, and nothing else ever does."""

import io
import json
import random
import struct
import zlib
from typing import Any

import pytest

from benchback.measure import wire
from benchback.measure.wire import MAGIC, Garbled, Reader, parse_record, write_frame

MESSAGE = {"kind": "record", "record": {"samples": {"total_s": [0.25, None, 1e-9]}, "note": "ünï\u202e\0"}}


def frame(message: Any) -> bytes:
    stream = io.BytesIO()
    write_frame(stream, message)
    return stream.getvalue()


def framed(body: bytes) -> bytes:
    """A frame that is right but for what its body says."""
    length = struct.pack(">I", len(body))
    return MAGIC + length + struct.pack(">I", zlib.crc32(length + body)) + body


def read(data: bytes) -> list[dict[str, Any]]:
    reader = Reader()
    messages = list(reader.feed(data))
    reader.close()
    return messages


def test_messages_arrive_as_they_were_sent() -> None:
    assert read(frame(MESSAGE) + frame({"kind": "record"})) == [MESSAGE, {"kind": "record"}]


def test_the_pieces_in_which_bytes_arrive_do_not_matter() -> None:
    reader, data = Reader(), frame(MESSAGE) * 3
    assert [message for byte in data for message in reader.feed(bytes([byte]))] == [MESSAGE] * 3
    reader.close()


def test_a_hand_made_frame_is_the_same_as_a_written_one() -> None:
    assert framed(json.dumps(MESSAGE, separators=(",", ":")).encode()) == frame(MESSAGE)


def test_a_stream_that_takes_a_few_bytes_at_a_time_gets_them_all() -> None:
    class Narrow(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(data[:5])

    stream = Narrow()
    write_frame(stream, MESSAGE)
    assert stream.getvalue() == frame(MESSAGE)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not plain JSON"),
        (b"{", "not plain JSON"),
        (b"\xff\xfe{\0}\0", "not plain JSON"),
        ('{"kind":"record"}'.encode("utf-16"), "not plain JSON"),
        (b'{"kind":"record","x":NaN}', "NaN is not a number"),
        (b'{"kind":"record","x":[-Infinity]}', "-Infinity is not a number"),
        (b'{"kind":"record","x":1e999}', "too large"),
        (b'{"kind":"record","kind":"record"}', "given twice"),
        (b'{"kind":"record","x":' + b"[" * 200_000, "not plain JSON"),
        (b'{"kind":"record","x":' + b"9" * 10_000 + b"}", "not plain JSON"),
        (b'["record"]', "unknown kind None"),
        (b'"record"', "unknown kind None"),
        (b'{"record":1}', "unknown kind None"),
        (b'{"kind":"shutdown"}', "unknown kind 'shutdown'"),
        (b'{"kind":["record"]}', "unknown kind"),
    ],
    ids=lambda x: x[:24] if isinstance(x, bytes) else "",
)
def test_a_well_framed_body_that_is_no_message_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(Garbled, match=why):
        read(framed(body))


def test_text_printed_into_the_pipe_is_refused_at_its_first_byte() -> None:
    with pytest.raises(Garbled, match="not the beginning"):
        list(Reader().feed(b"W"))


def test_a_length_beyond_the_limit_is_refused_before_the_body_comes() -> None:
    with pytest.raises(Garbled, match="longer than"):
        list(Reader().feed(MAGIC + struct.pack(">II", wire.MAX_BODY_BYTES + 1, 0)))


def test_messages_before_the_first_wrong_byte_arrive_and_none_after_it() -> None:
    assert reader_until_garbled(frame(MESSAGE) + b"?" + frame(MESSAGE)) == [MESSAGE]


def reader_until_garbled(data: bytes) -> list[dict[str, Any]]:
    got = []
    try:
        for message in Reader().feed(data):
            got.append(message)
    except Garbled:
        return got
    raise AssertionError("nothing was refused")


def test_a_reader_that_refused_once_accepts_nothing_more() -> None:
    reader = Reader()
    with pytest.raises(Garbled, match="beginning"):
        list(reader.feed(b"?"))
    with pytest.raises(Garbled, match="beginning"):
        list(reader.feed(frame(MESSAGE)))
    with pytest.raises(Garbled, match="beginning"):
        reader.close()


def test_a_pipe_that_ends_inside_a_message_is_garbled() -> None:
    whole = frame(MESSAGE)
    for end in range(1, len(whole)):
        with pytest.raises(Garbled, match="inside a message"):
            read(whole[:end])


@pytest.mark.parametrize("message", [{"kind": "shutdown"}, {}, {"kind": "record", "x": float("nan")}])
def test_what_no_reader_would_accept_is_not_sent(message: dict[str, Any]) -> None:
    stream = io.BytesIO()
    with pytest.raises(ValueError, match=r"kind|JSON"):
        write_frame(stream, message)
    assert stream.getvalue() == b""


def test_a_message_beyond_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_BODY_BYTES", 20)
    with pytest.raises(ValueError, match="longer than 20"):
        frame(MESSAGE)


def mutated(data: bytes, generator: random.Random) -> bytes:
    """`data` with one kind of damage; never `data` itself."""
    changed = bytearray(data)
    kind = generator.randrange(6)
    at = generator.randrange(len(data))
    if kind == 0:
        for _ in range(generator.choice([1, 1, 2, 3, 40])):
            changed[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    elif kind == 1:
        del changed[max(at, 1) :]
    elif kind == 2:
        changed[at:at] = generator.randbytes(generator.randint(1, 30))
    elif kind == 3:
        other = generator.randrange(len(data))
        changed[at], changed[other] = changed[other], changed[at]
    elif kind == 4:
        del changed[at : at + generator.randint(1, 30)]
    else:
        changed = bytearray(generator.randbytes(generator.randint(1, 200)))
    return bytes(changed) if changed != data else mutated(data, generator)


def test_none_of_ten_thousand_fuzzed_frames_is_accepted() -> None:
    generator = random.Random(0)
    refused = 0
    for number in range(10_000):
        message = MESSAGE | {"number": number, "words": "x" * generator.randrange(60)}
        with pytest.raises(Garbled):
            read_strictly(mutated(frame(message), generator))
        refused += 1
    assert refused == 10_000


def read_strictly(data: bytes) -> None:
    """Read to the end of the pipe; a message that comes through is a failure of its own, not a Garbled."""
    reader = Reader()
    accepted = list(reader.feed(data))
    assert not accepted, f"accepted {accepted}"
    reader.close()


def test_junk_after_a_frame_costs_nothing_but_what_follows_it() -> None:
    generator = random.Random(1)
    for _ in range(500):
        junk = generator.randbytes(generator.randint(13, 60))
        assert reader_until_garbled(frame(MESSAGE) + junk) == [MESSAGE]


RECORD = {"samples": {"total_s": [0.5, 0.25]}, "marks": {"first_call": 1.0, "finished": 2.0}, "memory": {}}


@pytest.mark.parametrize("durations", [[], [0.5, 0.0], [0.5, -0.25], [0.5, None], [0.0]])
def test_a_training_whose_calls_took_no_time_is_refused(durations: list[float | None]) -> None:
    ledger = {"ledger": {"iterations_per_call": 1}}
    assert parse_record(RECORD | ledger).samples["total_s"] == [0.5, 0.25]
    with pytest.raises(Garbled, match="total_s of a record must be positive"):
        parse_record(RECORD | ledger | {"samples": {"total_s": durations}})


@pytest.mark.parametrize("per_call", [None, 0, 1.0, True, "1"])
def test_a_training_that_does_not_say_how_long_a_call_is_is_refused(per_call: object) -> None:
    with pytest.raises(Garbled, match="iterations_per_call"):
        parse_record(RECORD | {"ledger": {"iterations_per_call": per_call}})
