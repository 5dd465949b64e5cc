"""A runner of a relay: one training in a process of its own that is called a turn at a time and rests in between.

Started as `python -m benchback.measure.relay_worker FD`; reads a line of JSON per request from its standard input and
answers each, by its number, with a frame to the file descriptor FD. `start` builds the training and warms it up, `turn`
calls it a few times, `finish` asks for the record.
"""

import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchback.agent import start
from benchback.measure.record import Record
from benchback.measure.worker import Job, SharedWeights, Training, die_with, network_arrays, with_shared


def main() -> None:
    """Answer requests until standard input ends."""
    from benchback.measure.wire import write_frame

    runner = None
    with os.fdopen(int(sys.argv[1]), "wb") as stream:
        for line in sys.stdin:
            request = json.loads(line)
            number = request["number"]
            if request["do"] == "start":
                job = Job.from_dict(request["job"])
                die_with(job.coordinator)
                weights = SharedWeights(Path(request["weights"]), request["writes"])
                runner = Runner(job, weights, request["iterations"], request["num_iterations"])
                write_frame(stream, {"kind": "answer", "number": number} | runner.ready())
                continue
            assert runner is not None
            if request["do"] == "turn":
                seconds = runner.turn(request["calls"], request["round"], request["position"])
                write_frame(stream, {"kind": "answer", "number": number, "seconds": seconds})
            else:
                write_frame(stream, {"kind": "record", "number": number, "record": asdict(runner.record())})
    # Frameworks take a second to free what the system frees at exit.
    os._exit(0)


class Runner:
    """A training that has been warmed up, and what it does between its turns."""

    def __init__(self, job: Job, weights: SharedWeights, iterations: int, num_iterations: int) -> None:
        """Build the training and run its first `iterations`, enough to compile everything and to begin learning.

        `num_iterations` replaces those of the cell, which may have too few for a turn.
        """
        longer = replace(job.cell, run={**job.cell.run, "num_iterations": num_iterations})
        self.training = Training(replace(job, cell=longer), weights)
        self.shared = replace(weights, writes=False)
        self.weights = digest_of(network_arrays(self.training.program.weights(self.training.state)))
        self.warm_s = self.training.call(iterations // self.training.run.length, round=0, position=0)
        self.iteration = 0
        self.count(len(self.warm_s))
        # Compared between variants: counted before turns, of which some variants have longer ones.
        self.ledger = self.training.ledger() | {"weights": self.weights, "protocol": "relay"}
        self.ledger["calls"] = job.cell.run["num_iterations"] // self.training.run.length
        self.warm = iterations
        # A copy of a population would count as its memory: it begins anew instead.
        several = self.training.program.members > 1
        self.checkpoint = None if several else self.training.agent.export(self.training.state)
        self.resting_s = self.resting_cpu_s = 0.0
        self.rest()

    def ready(self) -> dict[str, float]:
        """How long a call takes, and how much memory the process holds."""
        from benchback.measure.clock import peak_bytes

        return {"call_s": statistics.median(self.warm_s[1:] or self.warm_s), "bytes": float(peak_bytes())}

    def turn(self, calls: int, round: int, position: int) -> float:
        """Seconds of one turn; the training begins again where it was warm if it would exceed its iterations."""
        self.resting_s += time.perf_counter() - self.rested[0]
        self.resting_cpu_s += time.process_time() - self.rested[1]
        training = self.training
        if self.iteration + calls * training.run.length > training.run.config.num_iterations:
            self.begin_again()
        seconds = sum(training.call(calls, round=round, position=position))
        self.count(calls)
        self.rest()
        return seconds

    def begin_again(self) -> None:
        """Go back to where the training was warm."""
        training = self.training
        if self.checkpoint is None:
            training.state = None  # two populations at a time would count as memory
            training.state = start(training.agent, training.run.seed)
            training.state = with_shared(training.program, training.state, self.shared)
            training.skip(self.warm // training.run.length)
        else:
            training.state = training.agent.load(training.state, self.checkpoint)
        self.iteration = self.warm

    def count(self, calls: int) -> None:
        """Note how many iterations of the training are done after each of these calls."""
        length = self.training.run.length
        done = [self.iteration + length * (i + 1) for i in range(calls)]
        self.training.samples.setdefault("iteration", []).extend(done)
        self.iteration = done[-1]

    def rest(self) -> None:
        """Note when the process began to wait, and its processor time: a waiting process must not use any."""
        self.rested = time.perf_counter(), time.process_time()

    def record(self) -> Record:
        """Every call of the warm-up and of the turns."""
        found = self.training.record()
        share = self.resting_cpu_s / self.resting_s if self.resting_s else 0.0
        ledger = self.ledger | {"resting_cpu_share": round(share, 4), "compiles": found.ledger["compiles"]}
        if "waited_s" in found.samples:
            waited_s, turns_s = (in_turns_s(found.samples, name) for name in ("waited_s", "total_s"))
            ledger["waiting_share"] = round(waited_s / turns_s, 4) if turns_s else 0.0
        ledger["compiles_in_turns"] = found.ledger["compiles"] - self.ledger["compiles"]
        return Record(found.samples, found.marks, ledger, found.memory)


def in_turns_s(samples: Mapping[str, Sequence[float | None]], name: str) -> float:
    """Seconds of this kind in all turns, the warm-up not included."""
    return sum(x for x, place in zip(samples[name], samples["round"], strict=True) if x and place)


def digest_of(arrays: Mapping[str, Any]) -> str:
    """A short hash of names and values, as float32: the same in every framework for the same weights."""
    import numpy as np

    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(name.encode() + np.asarray(array, "<f4").tobytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    main()
