"""TensorBoard: an event file per run, by TensorBoard's own writer, so that no framework is loaded for it."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchback.tools.track.run import INDEX, Row, Sink, Tracked


def write(run: Tracked, folder: Path, online: bool) -> None:
    """A scalar for every value with the iteration as its step, and the configuration as text."""
    with writing(run, folder, online) as sink:
        sink.log(run.rows)
        sink.summarise(run.summary)


@contextmanager
def writing(run: Tracked, folder: Path, online: bool) -> Iterator[Sink]:
    """An event file that grows with every row; TensorBoard reads all such files of a folder as one run."""
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    Event, Summary = _message("event_pb2", "Event"), _message("summary_pb2", "Summary")
    writer, began, last = EventFileWriter(str(folder)), None, 0

    def add(at: float, step: int, values: list[Any]) -> None:
        writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=values)))

    def log(rows: Sequence[Row]) -> None:
        nonlocal began, last
        for row in rows:
            if began is None:
                began = time.time() - rows[-1]["seconds"]
            last = int(row["iteration"])
            values = [Summary.Value(tag=name, simple_value=x) for name, x in row.items() if name not in INDEX]
            add(began + row["seconds"], last, values)
        writer.flush()

    def summarise(summary: Mapping[str, float]) -> None:
        add(time.time(), last, [Summary.Value(tag=name, simple_value=x) for name, x in summary.items()])

    try:
        add(time.time(), 0, [_text(run)])
        yield Sink(log, summarise)
    finally:
        writer.close()


def _text(run: Tracked) -> Any:
    """The configuration as TensorBoard's text tab shows it."""
    Summary, SummaryMetadata = (_message("summary_pb2", name) for name in ("Summary", "SummaryMetadata"))
    TensorProto, DT_STRING = _message("tensor_pb2", "TensorProto"), _message("types_pb2", "DT_STRING")
    TensorShapeProto = _message("tensor_shape_pb2", "TensorShapeProto")
    shown = "\n".join(f"    {line}" for line in json.dumps(dict(run.config), indent=2).splitlines())
    tensor = TensorProto(dtype=DT_STRING, string_val=[shown.encode()], tensor_shape=TensorShapeProto())
    kind = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary.Value(tag="config", metadata=kind, tensor=tensor)


def _message(module: str, name: str) -> Any:
    """A protobuf message class; they are created on import, so no type checker knows them."""
    return getattr(import_module(f"tensorboard.compat.proto.{module}"), name)
