"""An attempt as a row of the store, and back: the fields that leasing needs as columns, the rest compressed."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchback.measure.record import Attempt, canonical
from benchback.measure.schema import Damaged

MAX_PAYLOAD_BYTES = 1 << 30
"""Largest size of an unpacked attempt; a larger one is refused as damaged."""
COLUMNS = ("slot", "number", "outcome", "tags")


def packed(attempt: Attempt) -> dict[str, Any]:
    """An attempt as a row: the fields that leasing needs as columns, the rest compressed."""
    fields = asdict(attempt)
    row = {name: fields.pop(name) for name in COLUMNS}
    return row | {"tags": canonical(row["tags"]), "payload": zlib.compress(canonical(fields).encode())}


def unpacked(row: Mapping[str, Any]) -> Attempt:
    """The inverse of `packed`, for a verified row."""
    fields = {name: row[name] for name in COLUMNS}
    unpack = zlib.decompressobj()
    try:
        body = json.loads(unpack.decompress(row["payload"], MAX_PAYLOAD_BYTES))
        return Attempt.from_dict(fields | {"tags": json.loads(row["tags"])} | body)
    except (zlib.error, ValueError, TypeError) as error:
        name = f"attempt {row['slot']} number {row['number']}"
        raise Damaged(f"{name} cannot be unpacked ({error}); restore the store from a copy") from error
