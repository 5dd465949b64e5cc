"""What is simpler where a program contains one agent, actions are discrete, or an environment keeps its types."""

from typing import Any


def only_member(happens: Any) -> Any:
    """Whether it happens: there are no other members."""
    return happens


def unsplit(data: Any) -> Any:
    """The data: there is one device."""
    return data


def observation_shape(environment: Any, params: Any, actions: Any) -> tuple[tuple[int, ...], None]:
    """The shape of an observation; the state has the same types after a reset as after a step."""
    return environment.observation_space(params).shape, None


def uncast(inner: Any, dtypes: Any) -> Any:
    """The state: its types never differ."""
    return inner


def without_log_std(params: Any, value: Any) -> Any:
    """The parameters: the policy has no standard deviation."""
    return params
