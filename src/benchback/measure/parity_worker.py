"""The parity worker: how far some backends are from the oracle, measured in a process of its own.

Started as `python -m benchback.measure.parity_worker FD` with a job as JSON on its standard input (algorithm,
backends, levels, dtypes); sends one message with a row for each quantity to the file descriptor FD.
"""

import json
import math
import os
import sys
from typing import Any


def main() -> None:
    """Read the job, measure, send the rows."""
    from benchback.measure.wire import write_frame
    from benchback.parity import measure

    job = json.load(sys.stdin)
    rows = measure(job["algorithm"], job["backends"], job["dtypes"], job["levels"])
    with os.fdopen(int(sys.argv[1]), "wb") as stream:
        write_frame(stream, {"kind": "parity", "rows": [to_dict(row) for row in rows]})


def to_dict(row: Any) -> dict[str, Any]:
    """The fields of a row that its verdict needs; a NaN deviation is None, since JSON has no NaN."""
    deviation = row.deviation if math.isfinite(row.deviation) else None
    return {"backend": row.backend, "level": row.level, "quantity": row.quantity, "deviation": deviation, "ok": row.ok}


if __name__ == "__main__":
    main()
