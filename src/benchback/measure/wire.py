"""Messages from worker to coordinator over a pipe: framed JSON that is either parsed exactly or refused.

A frame is `MAGIC`, the length of the body (4 bytes, big-endian), the CRC-32 of length and body (4 bytes), and the
body: one JSON object in UTF-8 with a known `kind`. There is no resynchronisation: after the first wrong byte
nothing that follows can be trusted.
"""

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from io import BufferedIOBase, RawIOBase
from typing import Any, NoReturn

from benchback.measure.record import Record

MAGIC = b"\xb5BW1"
"""Begins with a byte that no UTF-8 text begins with: text printed by mistake is never taken for a frame."""
MAX_BODY_BYTES = 64 << 20
KINDS = frozenset({"record", "answer", "parity"})
"""Kinds of message: the record of a run, the answer of a resident process, deviations from the oracle."""
_HEADER = struct.Struct(">4sII")


class Garbled(Exception):
    """Bytes that are not a message. The reader that raised it accepts nothing more."""


def write_frame(stream: BufferedIOBase | RawIOBase, message: Mapping[str, Any]) -> None:
    """Send one message, whole; ValueError if no reader would accept it."""
    if message.get("kind") not in KINDS:
        raise ValueError(f"kind {message.get('kind')!r} is not one of {', '.join(sorted(KINDS))}")
    body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is longer than {MAX_BODY_BYTES}")
    rest = memoryview(_HEADER.pack(MAGIC, len(body), _crc(body)) + body)
    # An unbuffered stream may take less than it is given.
    while rest:
        rest = rest[stream.write(rest) or 0 :]
    stream.flush()


class Reader:
    """Turns the bytes of a pipe, in whatever pieces they come, back into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._fault = ""

    def feed(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """The messages that `piece` completes; Garbled at the first wrong byte and on every later call."""
        self._pending += piece
        return self._messages()

    def _messages(self) -> Iterator[dict[str, Any]]:
        while (message := self._next()) is not None:
            yield message

    def close(self) -> None:
        """Mark the end of the pipe; Garbled if it ended inside a message."""
        if self._fault or self._pending:
            self._refuse(self._fault or f"ended inside a message, after {len(self._pending)} bytes of it")

    def _next(self) -> dict[str, Any] | None:
        """The next message, or None until more has come."""
        if self._fault:
            self._refuse(self._fault)
        start = self._pending[: len(MAGIC)]
        if not MAGIC.startswith(start):
            self._refuse(f"{bytes(start)!r} is not the beginning of a message")
        if len(self._pending) < _HEADER.size:
            return None
        _, length, crc = _HEADER.unpack_from(self._pending)
        if length > MAX_BODY_BYTES:
            self._refuse(f"a message of {length} bytes is longer than {MAX_BODY_BYTES}")
        end = _HEADER.size + length
        if len(self._pending) < end:
            return None
        body = bytes(self._pending[_HEADER.size : end])
        if _crc(body) != crc:
            self._refuse(f"the checksum of a message of {length} bytes does not match")
        del self._pending[:end]
        return self._parsed(body)

    def _parsed(self, body: bytes) -> dict[str, Any]:
        try:
            message = json.loads(
                body.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
            )
        except (ValueError, RecursionError) as error:
            self._refuse(f"a message is not plain JSON: {error}")
        kind = message.get("kind") if isinstance(message, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            self._refuse(f"a message of unknown kind {kind!r:.80}")
        return message

    def _refuse(self, fault: str) -> NoReturn:
        self._fault = fault
        self._pending.clear()
        raise Garbled(fault)


def parse_parts(fields: Any) -> Record:
    """The record in a message of any kind of cell; Garbled if it is none."""
    parts = ("samples", "marks", "ledger", "memory")
    if not isinstance(fields, dict) or set(fields) != set(parts):
        raise Garbled(f"a record must have exactly {', '.join(parts)}")
    for part in parts:
        if not isinstance(fields[part], dict):
            raise Garbled(f"{part} of a record must be a mapping")
    for name, values in fields["samples"].items():
        if not isinstance(values, list) or not all(x is None or _is_number(x) for x in values):
            raise Garbled(f"samples {name:.40} of a record must be a list of numbers")
    for part in ("marks", "memory"):
        if not all(map(_is_number, fields[part].values())):
            raise Garbled(f"{part} of a record must be numbers")
    return Record.from_dict(fields)


def parse_record(fields: Any) -> Record:
    """The record of a training, with everything that metrics are computed from; Garbled if it is none."""
    record = parse_parts(fields)
    durations = record.samples.get("total_s")
    if not durations or not all(x is not None and x > 0 for x in durations):
        raise Garbled("total_s of a record must be positive numbers, one for each call")
    if not {"first_call", "finished"} <= record.marks.keys():
        raise Garbled("marks of a record must be numbers, with first_call and finished")
    per_call = record.ledger.get("iterations_per_call")
    if type(per_call) is not int or per_call < 1:
        raise Garbled(f"iterations_per_call={per_call!r:.40} of a record must be a whole number of at least 1")
    return record


def parse_relay_record(fields: Any) -> Record:
    """The record of a training that took turns; Garbled if it is none."""
    record = parse_record(fields)
    calls = len(record.samples["total_s"])
    for name in ("round", "position"):
        if len(record.samples.get(name, [])) != calls:
            raise Garbled(f"{name} of a relay's record must have a number for each of its {calls} calls")
    return record


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _crc(body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(len(body).to_bytes(4, "big")))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is given twice")
    return fields


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large for a number")
    return value
