"""What is simpler where a program contains one agent, or actions are discrete."""

from typing import Any


def only_member(happens: Any) -> Any:
    """Whether it happens: there are no other members."""
    return happens


def without_log_std(params: Any, value: Any) -> Any:
    """The parameters: the policy has no standard deviation."""
    return params
