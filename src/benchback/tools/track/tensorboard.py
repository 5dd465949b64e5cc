"""TensorBoard: an event file per run, by TensorBoard's own writer, so that no framework is loaded for it."""

import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchback.tools.track.run import Tracked

INDEX = ("iteration", "env_steps")
"""Columns that index a row and are not curves."""


def write(run: Tracked, folder: Path, online: bool) -> None:
    """A scalar for every value with the iteration as its step, and the configuration as text."""
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    Event, Summary = _message("event_pb2", "Event"), _message("summary_pb2", "Summary")
    now = time.time()
    began = now - (run.rows[-1]["seconds"] if run.rows else 0.0)
    writer = EventFileWriter(str(folder))
    try:
        writer.add_event(Event(wall_time=began, step=0, summary=Summary(value=[_text(run)])))
        for row in run.rows:
            values = [Summary.Value(tag=name, simple_value=x) for name, x in row.items() if name not in INDEX]
            at = began + row["seconds"]
            writer.add_event(Event(wall_time=at, step=int(row["iteration"]), summary=Summary(value=values)))
        last = [Summary.Value(tag=name, simple_value=x) for name, x in run.summary.items()]
        writer.add_event(Event(wall_time=now, step=len(run.rows), summary=Summary(value=last)))
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
