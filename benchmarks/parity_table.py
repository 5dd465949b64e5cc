"""How far every backend is from the oracle with convolutions and with a memory: levels, precisions, one table each.

`python benchmarks/parity_table.py --networks cnn gru` measures L0 to L4 of PPO in float32 and float64 and prints the
tables of docs/networks.md and docs/recurrent.md, `--algorithm dqn --networks cnn` that of DQN: in each place the
deviation that comes closest to its tolerance, and how close.
L0 to L3 are measured on the cases of a proof, the JAX backends in their best mode; L4 compares all modes and units with
mode `none`. What is done is kept in runs/parity.jsonl, level by level, so a run that was broken off goes on where it
stopped; remove the file to start anew.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchback.cli.arguments import limit_threads
from benchback.cli.matrix import strain
from benchback.parity import DTYPES, LEVELS, Row, measure
from benchback.registry import BUILT_IN_BACKENDS

KEPT = Path(__file__).parent.parent / "runs" / "parity.jsonl"
Place = tuple[str, str, str, str, str]
"""Algorithm, network, backend, precision and level."""
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
"""As in the tests: most of the time is compiling, and XLA's older emitters of fusions compile sooner."""


def kept() -> dict[Place, dict[str, Any]]:
    """What was measured before."""
    rows = [json.loads(text) for text in KEPT.read_text().splitlines()] if KEPT.exists() else []
    return {(row["algorithm"], row["network"], row["backend"], row["dtype"], row["level"]): row for row in rows}


def keep(network: str, rows: Sequence[Row]) -> None:
    """Write what a level has come to: its row that is closest to its tolerance, or beyond it."""
    worst = max(rows, key=strain)
    found = {"algorithm": worst.algorithm, "network": network, "backend": worst.backend}
    found |= {"dtype": worst.dtype, "level": worst.level}
    found |= {"quantity": worst.quantity, "deviation": worst.deviation, "tolerance": worst.tolerance}
    found |= {"rows": len(rows), "failed": [row.quantity for row in rows if not row.ok]}
    with KEPT.open("a") as file:
        file.write(json.dumps(found) + "\n")
    print(json.dumps(found), flush=True)


def measured(algorithm: str, network: str, backend: str, dtype: str, levels: Sequence[str]) -> None:
    """Measure those of the levels that are missing, which share programs."""
    missing = [level for level in levels if (algorithm, network, backend, dtype, level) not in kept()]
    spec = BUILT_IN_BACKENDS[backend]
    mode = spec.best if spec.family == "jax" else "none"
    rows: list[Row] = []
    for row in measure(algorithm, [backend], [dtype], missing, mode=mode, thorough=False, network=network):
        if rows and rows[0].level != row.level:
            keep(network, rows)
            rows = []
        rows.append(row)
    if rows:
        keep(network, rows)


def table(algorithm: str, network: str) -> str:
    """The deviations of a network in Markdown."""
    found = kept()
    lines = [f"| {algorithm}, {network} | precision | {' | '.join(LEVELS)} |", "|---|---|" + "---|" * len(LEVELS)]
    for backend, spec in BUILT_IN_BACKENDS.items():
        for dtype in DTYPES:
            cells = [cell(found.get((algorithm, network, backend, dtype, level))) for level in LEVELS]
            lines.append(f"| {spec.title} | {dtype} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(row: dict[str, Any] | None) -> str:
    """Deviation, and the part of the tolerance that it is; where all are exact, zero."""
    if row is None:
        return "not measured"
    if row["failed"]:
        return f"**{', '.join(row['failed'])}**"
    share = row["deviation"] / row["tolerance"] if row["tolerance"] else 0.0
    return f"{row['quantity'].partition('/')[0]} {row['deviation']:.0e} ({share:.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", default="ppo", choices=["ppo", "dqn"])
    parser.add_argument("--networks", nargs="*", default=["cnn", "shared_cnn", "gru"])
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--backends", nargs="*", default=list(BUILT_IN_BACKENDS), choices=BUILT_IN_BACKENDS)
    parser.add_argument("--levels", nargs="*", default=list(LEVELS), choices=LEVELS)
    flags = parser.parse_args()
    limit_threads(1)
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()
    KEPT.parent.mkdir(exist_ok=True)
    # Backends of one precision after each other: in mode `none` they share the programs of single operations.
    for network in flags.networks:
        for dtype in flags.dtypes:
            for backend in flags.backends:
                measured(flags.algorithm, network, backend, dtype, flags.levels)
        print(f"\n{table(flags.algorithm, network)}\n", flush=True)


if __name__ == "__main__":
    main()
