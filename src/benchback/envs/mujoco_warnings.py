"""MuJoCo's warnings, switched off where an environment is made or traced."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def without_mujoco_warnings() -> Iterator[None]:
    """Context in which MuJoCo neither prints warnings nor appends them to MUJOCO_LOG.TXT in the working directory.

    It would warn for every copy of a model of brax, Playground or gymnasium. No-op if MuJoCo is not installed.
    """
    try:
        mujoco: Any = import_module("mujoco")  # compiled: its names are unknown to the type checker
    except ImportError:
        yield
        return
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
