"""MLflow: runs in its file store, which works without a server; `mlflow ui --backend-store-uri runs/mlruns` shows them.

MLflow calls that store finished rather than recommended, and asks for a word before it uses it (`VARIABLES`).
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchback.tools.track.run import INDEX, Row, Sink, Tracked

VARIABLES = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""Environment of the process that feeds it."""
MOST_METRICS = 1000
"""Values that MLflow takes at once."""
LONGEST = 500
"""Characters of a parameter that MLflow takes."""


@contextmanager
def writing(run: Tracked, folder: Path, online: bool) -> Iterator[Sink]:
    """A run of the experiment named like the study; its fields are parameters, its iterations steps."""
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=folder.resolve().as_uri())
    known = client.get_experiment_by_name(run.study)
    experiment = known.experiment_id if known else client.create_experiment(run.study)
    id = client.create_run(experiment, run_name=run.name).info.run_id
    client.log_batch(id, params=[Param(name, str(x)[:LONGEST]) for name, x in run.config.items()])

    def log(rows: Sequence[Row]) -> None:
        now = round(time.time() * 1000)
        values = [
            Metric(name, float(x), now, int(row["iteration"]))
            for row in rows
            for name, x in row.items()
            if name not in INDEX
        ]
        for place in range(0, len(values), MOST_METRICS):
            client.log_batch(id, metrics=values[place : place + MOST_METRICS])

    try:
        yield Sink(log, lambda summary: log([{"iteration": 0, **summary}]))
    except BaseException:
        client.set_terminated(id, status="FAILED")
        raise
    client.set_terminated(id)
