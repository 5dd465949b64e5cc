"""A comparison with peers as one HTML file: targets, speeds, limits, differences; nothing that comes from elsewhere."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from benchback.analysis.wording import machine_name, ratio_text
from benchback.measure.peers.targets import NEAR_LIMIT, Reached, reached
from benchback.measure.peers.work import WORKLOADS, Workload
from benchback.measure.store import Store
from benchback.report.chart import WIDTH, chart, log, with_data
from benchback.report.document import document, figure, table
from benchback.report.drawing import draw
from benchback.training.checkpoint import write_atomically

WIDEST = 10.0
"""Widest interval shown, as high / low."""
COLUMNS = ("side", "blocks", "env steps/s", "GFLOP/s", "products", "bandwidth", "env", "limit", "compile s", "peak MB")
SHARES = ("products", "bandwidth", "env", "limit")
BAR = 22
"""Height of a side in a chart."""
LABEL = 180
"""Width of the longest name beside it."""
Lines = Sequence[dict[str, Any]]
"""Of `peers.summarise`."""


def write(store: Store, lines: Lines, folder: Path) -> Path:
    """Write the page into the folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    write_atomically(path, page(lines, provenance(store)))
    return path


def provenance(store: Store) -> str:
    """Machine and runs, in two sentences."""
    attempts = list(store.attempts())
    busy = sum(bool(attempt.tags) for attempt in attempts)
    return (
        f"{machine_name(store.strata()[-1])}: {len(attempts)} runs, {busy} of them noisy. "
        "The same choices given to `benchback peers` continue what is unfinished."
    )


def page(lines: Lines, provenance: str) -> str:
    """The whole file."""
    names = [name for name in WORKLOADS if any(line["workload"] == name for line in lines)]
    parts = "".join(_workload(WORKLOADS[name], [x for x in lines if x["workload"] == name]) for name in names)
    links = "".join(f'<li><a href="#{name}">{escape(title(WORKLOADS[name]))}</a></li>' for name in names)
    body = (
        f'<p class="recommendation">{escape(verdict(reached(lines)))}</p><ul>{links}</ul>'
        f"{_targets(reached(lines))}{parts}<h2>How it was measured</h2><p>{escape(METHOD)}</p>"
        f"<p>{escape(provenance)}</p>"
    )
    return document("benchback and its peers", body)


METHOD = (
    "Every side is a process of its own, started afresh for every run; the runs of a block come in a drawn "
    "order, and ratios are taken within blocks, with 95 % intervals where there are at least two. One program is timed "
    "by its second execution, what Python drives after its warm-up. Products: the share of its time that all products "
    "of matrices of its networks would take in NumPy, each with its own shape. Bandwidth: the share that its bytes "
    "would take at the speed of a copy, had no cache kept any. Env: the share that its environment's steps take by "
    "themselves. Limit: products and environment together, as they follow each other on one thread."
)


def title(work: Workload) -> str:
    """`D: DQN on CartPole-v1`."""
    kind = {"mlp": "", "gru": " with a GRU"}.get(work.network, f" with network {work.network}")
    many = f", {work.agents} agents" if work.agents > 1 else ""
    return f"{work.name}: {work.algorithm.upper()}{kind} on {work.env}{many}"


def verdict(found: Sequence[Reached]) -> str:
    """The targets in a sentence."""
    if not found:
        return "No pair of sides that has a target was measured."
    counts = {name: sum(x.verdict == name for x in found) for name in ("met", "at the limit", "not met")}
    return (
        f"Of {len(found)} targets {counts['met']} are met, {counts['at the limit']} stand at {NEAR_LIMIT:.0%} or more "
        f"of what the machine can do, and {counts['not met']} are not met."
    )


def _targets(found: Sequence[Reached]) -> str:
    rows = [
        (
            f"{x.target.workload}, {x.target.family} over {x.target.peer}",
            f"{x.target.ratio:g}x",
            _ratio(x.ratio),
            x.side,
            "" if x.limit is None else f"{x.limit:.0%}",
            x.verdict,
        )
        for x in found
    ]
    columns = ("target", "asked", "measured", "by", "of the limit", "verdict")
    return f"<h2>Targets</h2>{table(columns, rows)}" if found else ""


def _workload(work: Workload, lines: Lines) -> str:
    own = [line["side"] for line in lines if line["own"]]
    rows = [_row(line) for line in lines]
    ratios = [(line["side"], *(_ratio(line["ratios"].get(name)) for name in own)) for line in lines if line["ratios"]]
    told = ", ".join(f"{name} {_said(x)}" for name, x in work.to_dict().items() if name not in ("algorithm", "env"))
    return (
        f'<h2 id="{work.name}">{escape(title(work))}</h2><p>{escape(told)}</p>{_figure(work, lines)}'
        f"{table((*COLUMNS, 'return'), rows)}<h3>How many times as fast</h3>"
        f"{table(('than', *(f'{name} is' for name in own)), ratios)}"
        f"<h3>What differs</h3><ul>{''.join(f'<li>{escape(_differs(line))}</li>' for line in lines)}</ul>"
    )


def _said(value: Any) -> str:
    """`64-64` for layers, `off` for False."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    if line["steps_per_s"] is None:
        return (line["side"], "0", line["error"], *[""] * (len(COLUMNS) - 2))
    return (
        line["side"],
        str(line["blocks"]),
        f"{line['steps_per_s']:,.0f}",
        "" if line["flops_per_s"] is None else f"{line['flops_per_s'] / 1e9:.1f}",
        *("" if line[name] is None else f"{line[name]:.0%}" for name in SHARES),
        f"{line['compile_s']:.1f}",
        f"{line['peak_rss_bytes'] / 1e6:,.0f}",
        "" if line["episode_return"] is None else f"{line['episode_return']:.1f}",
    )


def _differs(line: dict[str, Any]) -> str:
    other = ", ".join(f"{name}={value}" for name, value in line["differs"].items())
    pins = [pin for pin in line["pins"] if pin.split("==")[0] in line["side"].replace("_", "-") or "rl==" in pin]
    said = (line["note"], other and f"differs in {other}", ", ".join(pins), line["error"])
    return f"{line['side']}: {'; '.join(filter(None, said))}"


def _ratio(found: dict[str, Any] | None) -> str:
    return ratio_text(found["ratio"], found["low"], found["high"], widest=WIDEST) if found else ""


def _figure(work: Workload, lines: Lines) -> str:
    measured = [line for line in lines if line["steps_per_s"] is not None]
    if not measured:
        return ""
    svg, _ = draw(specification(measured))
    caption = "Environment steps a second, logarithmic; the tick is where a side would be at its own limit."
    return figure(svg, f"Speed of every side, {title(work)}", caption)


def specification(lines: Lines) -> dict[str, Any]:
    """The chart of speeds as Vega-Lite, with its data."""
    rows = [
        {
            "side": line["side"],
            "who": "benchback" if line["own"] else "peer",
            "steps_per_s": line["steps_per_s"],
            "at_limit": line["steps_per_s"] / line["limit"] if line["limit"] else None,
        }
        for line in lines
    ]
    y = alt.Y("side:N", sort=None, title=None, axis=alt.Axis(labelLimit=LABEL))
    x = alt.X("steps_per_s:Q", scale=log(), axis=alt.Axis(format="~s"), title="environment steps a second")
    who = alt.Color("who:N", title=None, scale=alt.Scale(domain=["benchback", "peer"], range=["#0072B2", "#999999"]))
    points = chart("peers").mark_point(filled=True, size=90).encode(x, y, who)
    limits = chart("peers").mark_tick(thickness=2, size=14, color="#D55E00").encode(alt.X("at_limit:Q", scale=log()), y)
    made = alt.layer(limits, points).properties(width=WIDTH - LABEL, height=BAR * len(rows))
    # A browser's font may be wider than the one that the room for names was measured with.
    specified = made.to_dict(validate=False) | {"padding": {"left": 24, "right": 8, "top": 5, "bottom": 5}}
    specified.pop("datasets", None)
    return with_data(specified, "peers", pl.DataFrame(rows, infer_schema_length=None))
