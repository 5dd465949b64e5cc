"""The parity worker: how far some cells' programs are from the oracle, measured in a process of its own.

Started as `python -m benchback.measure.parity_worker FD` with a list of proofs (see `Cell.proof`) as JSON on its
standard input; sends one message with a row for each quantity to the file descriptor FD.
"""

import json
import math
import os
import sys
from collections.abc import Iterator
from typing import Any


def main() -> None:
    """Read the proofs, measure, send the rows."""
    from benchback.measure.wire import write_frame
    from benchback.plugins.imports import import_passed_on

    import_passed_on()
    rows = [row for proof in json.load(sys.stdin) for row in rows_of(proof)]
    with os.fdopen(int(sys.argv[1]), "wb") as stream:
        write_frame(stream, {"kind": "parity", "rows": rows})


def rows_of(proof: str) -> Iterator[dict[str, Any]]:
    """The rows of a proof; if its program cannot be run, a last one that says why."""
    from benchback.parity import prove

    try:
        for row in prove(proof):
            yield {"proof": proof} | to_dict(row)
    # A proof that fails in any way must not take the others of this process with it.
    except Exception as error:
        yield {"proof": proof, "ok": False, "error": f"{type(error).__name__}: {error}".splitlines()[0]}


def to_dict(row: Any) -> dict[str, Any]:
    """The fields of a row that its verdict needs; a NaN deviation is None, since JSON has no NaN."""
    deviation = row.deviation if math.isfinite(row.deviation) else None
    return {"level": row.level, "quantity": row.quantity, "deviation": deviation, "ok": row.ok}


if __name__ == "__main__":
    main()
