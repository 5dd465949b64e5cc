"""The laws that every environment must keep, checked by playing it through `Env` alone.

A Subject says what is known of an environment beforehand; the more that is, the stricter the laws. `examine` gives one
Finding for each law: kept, broken, or not applicable, with the reason. The transitions themselves are not judged: only
their author knows what they should be.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from benchback.envs.conformance import laws, wrapper_laws
from benchback.envs.conformance.playing import Examination, Subject
from benchback.errors import InputError
from benchback.plugins.imports import cause

__all__ = ["LAWS", "Examination", "Finding", "Subject", "examine", "judge"]


class Finding(NamedTuple):
    """What was found about a law."""

    law: str
    outcome: Literal["pass", "fail", "skipped"]
    reason: str


LAWS: dict[str, Callable[[Examination], str]] = {
    "steps": laws.check_steps,
    "state": laws.check_state,
    "shapes": laws.check_shapes,
    "finite": laws.check_finite,
    "seeds": laws.check_seeds,
    "starts": laws.check_starts,
    "truncation": laws.check_truncation,
    "final_obs": laws.check_final_obs,
    "statistics": laws.check_statistics,
    "independence": laws.check_independence,
    "effect": laws.check_effect,
    "bounds": laws.check_bounds,
    "torch": laws.check_torch,
    "frame_stack": wrapper_laws.check_frame_stack,
    "observe": wrapper_laws.check_observe,
    "clip_reward": wrapper_laws.check_clip_reward,
    "sticky_actions": wrapper_laws.check_sticky_actions,
    "time_limit": wrapper_laws.check_time_limit,
}
"""Name -> its check, which returns the evidence; the docstring is the law."""


def judge(examined: Examination, law: str) -> Finding:
    """What is found about one law."""
    try:
        return Finding(law, "pass", LAWS[law](examined))
    except laws.Broken as found:
        return Finding(law, "fail", str(found))
    except laws.DoesNotApply as why:
        return Finding(law, "skipped", str(why))
    except InputError:
        raise
    # Whatever else happens while an environment is played, it is the environment's fault.
    except Exception as error:
        return Finding(law, "fail", cause(error))


def examine(subject: Subject) -> Iterator[Finding]:
    """A finding for every law; once it cannot be stepped, the others are skipped."""
    examined = Examination(subject)
    playable = True
    for law in LAWS:
        found = judge(examined, law) if playable else Finding(law, "skipped", "it cannot be stepped")
        playable = playable and (law, found.outcome) != ("steps", "fail")
        yield found
