"""A driver of a Ray cluster whose stations relay processes without a framework: everything else is the real thing.

`python cluster_double.py STORE FOLDER ADDRESS [LEASE_S] [ship]`: works on the campaign of STUDY on the cluster at
ADDRESS, with the faults that FOLDER has for its runners, until it is complete or asked to stop.
"""

import sys
from dataclasses import replace
from pathlib import Path

from campaign_double import HOOKS, proven, quiet, study
from relay_double import CALL_S, COMMAND

from benchback.cli.arguments import on_stop
from benchback.measure import nodes
from benchback.measure.cluster import stations_of
from benchback.measure.coordinator import LEASE_S, open_campaign
from benchback.measure.driver import Driver
from benchback.measure.nodes import Place
from benchback.measure.station import Tools

STUDY = study(
    gammas=[0.9 + i / 1000 for i in range(4)], max_blocks=2, aa=False, protocol="relay", turn_s=2 * CALL_S, relay_s=0.6
)
"""Eight blocks of three variants, six rounds each."""


def canary() -> dict[str, float]:
    return {"matmul_s": 0.001, "memcpy_s": 0.001}


def tools(folder: Path) -> Tools:
    return Tools((*COMMAND, str(folder)), proven, quiet, canary)


def main() -> None:
    path, folder, address, *options = sys.argv[1:]
    ship, lease_s = "ship" in options, [x for x in options if x != "ship"]
    stop, chosen = on_stop(), Place(address)
    lasts_s = float(lease_s[0]) if lease_s else LEASE_S
    nodes.BEAT_S = lasts_s / 12
    hooks = replace(HOOKS, launch=None, asked_to_stop=stop, log=lambda line: print(line, flush=True))
    with stations_of(chosen, STUDY, ship=ship, tools=tools(Path(folder))) as stations:
        first = stations.first(stop)
        with open_campaign(Path(path), STUDY, fingerprint=first.fingerprint, many=True) as store:
            done = Driver(store, STUDY, hooks, stations, [first], lasts_s, lasts_s / 4).work()
    sys.exit(0 if done else 130)


if __name__ == "__main__":
    main()
