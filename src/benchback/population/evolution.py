"""Population-based training (Jaderberg et al. 2017): members that lag behind go on from copies of those that lead.

After every round of iterations the worst members take networks, optimisers, collected data and floats of members drawn
from the best, and change the floats a little: exploit and explore. Episodes and random streams stay their own, so that
copies part. A round and what follows it are one program, compiled once. The curves say which floats a member had in
each iteration and from whom it was copied after it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from benchback import training
from benchback.agent import Agent, Backend, Role, State, Weights
from benchback.errors import InputError
from benchback.population.devices import divided
from benchback.population.folder import SEARCH
from benchback.population.members import compile_mode, member, role_of, view
from benchback.population.memory import check_memory
from benchback.population.ranges import Range
from benchback.population.spec import Members
from benchback.population.summary import RANKED_BY, summarise
from benchback.population.training import Progress, hyper_of, keys_of, likely, plain, rows_first
from benchback.training.checkpoint import Checkpoint
from benchback.training.run import Run

COPIED = (Role.NETWORK, Role.TARGET, Role.OPTIMISER, Role.DATA)
"""What a member takes from another, beside its floats."""
PARENT = "parent"
"""Column of the curves: whom a member was copied from after this iteration, itself if from nobody."""
DOWN, UP, STEP = 0.8, 1.25, 0.2
"""Factors on a logarithmic scale; share of the range on a linear one."""


@dataclass(frozen=True)
class Evolution:
    """How members take over from one another."""

    sources: Mapping[str, Range | Sequence[float]]
    """Field -> the numbers it may have."""
    every: int
    """Iterations of a round."""
    share: float = 0.25
    """Of the members: how many are replaced after a round, and how many they are drawn from."""
    resample: float = 0.25
    """Probability that a float is drawn anew rather than changed."""

    def replaced(self, size: int) -> int:
        """Members that are replaced after a round."""
        return int(size * self.share)

    def check(self, run: Run, size: int) -> None:
        """Raise an InputError unless members of the run can evolve so."""
        if not self.replaced(size):
            raise InputError(f"--points {size} are too few to replace a quarter of them; choose 4 or more")
        if self.every < 1 or run.config.num_iterations % self.every:
            best = max(d for d in range(1, max(1, self.every) + 1) if run.config.num_iterations % d == 0)
            raise InputError(
                f"--every {self.every} does not divide the {run.config.num_iterations} iterations; choose a divisor, "
                f"e.g. {best}"
            )


def train_evolving(
    run: Run,
    members: Members,
    *,
    evolution: Evolution,
    group: int | None = None,
    devices: int = 1,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Progress]:
    """Train as `train_members` does, a round at each call, and let members take over from one another in between.

    Metrics of the floats that evolve have their names with `hyper_` in front.
    """
    evolution.check(run, len(members))
    run = replace(run, unit="chunk", chunk=evolution.every)
    done = checkpoint.iteration if checkpoint else 0
    training.check_rest(run, done)
    agent, many, backend = _built(
        run, evolution, len(members), group or likely(run, len(members), devices).group, devices
    )
    hyper = hyper_of(agent, members)
    if checkpoint:
        kept = {name: checkpoint.weights[f"{SEARCH}{name}"] for name in evolution.sources}
        hyper = hyper._replace(**{name: np.asarray(x) for name, x in kept.items()})
    state = many.init(keys_of(agent, members), hyper)
    if checkpoint:
        state = many.load(state, training.transplantable(run, checkpoint))
    return _loop(run, len(members), agent, many, backend, state, done)


def _built(run: Run, evolution: Evolution, size: int, group: int, devices: int) -> tuple[Agent, Agent, Backend]:
    """The agent, and its population whose `iterate` takes a seed, iterations done, and whether members evolve then."""
    agent, backend = plain(run)
    mode = compile_mode(backend, run.compile_mode)
    check_memory(agent, backend, unit=run.unit, size=size, group=group)
    single = view(backend.units[run.unit](agent, run.length), backend)
    many = divided(single, size, group, devices)
    advance = cast(Any, many.iterate)

    def round_of(
        state: State, seed: UInt[Array, ""], done: UInt[Array, ""], evolving: Bool[Array, ""]
    ) -> tuple[State, Any]:
        key = jax.random.fold_in(jax.random.key(seed), done)
        state, metrics = advance(state)
        before = floats(single, state)
        used = {f"hyper_{name}": _repeated(before[name], run.length) for name in evolution.sources}
        state, parent = evolve(single, state, metrics[RANKED_BY], key, evolving, evolution)
        own = jnp.arange(size)
        stayed = jnp.broadcast_to(own[:, None], (size, run.length)).at[:, -1].set(parent)
        return state, metrics | used | {PARENT: stayed}

    return single, mode(replace(many, iterate=round_of)), backend


def _repeated(x: Float[Array, "N"], length: int) -> Float[Array, "N K"]:
    return jnp.broadcast_to(x[:, None], (len(x), length))


def evolve(
    agent: Agent,
    state: State,
    returns: Float[Array, "N K"],
    key: Key[Array, ""],
    evolving: Bool[Array, ""],
    evolution: Evolution,
) -> tuple[State, Int[Array, "N"]]:
    """The population after exploit and explore, and whom each member was copied from."""
    parent_key, change_key = jax.random.split(key)
    parent = choose_parents(scores_of(returns), parent_key, evolution.replaced(len(returns)))
    parent = jnp.where(evolving, parent, jnp.arange(len(parent)))
    copied = parent != jnp.arange(len(parent))
    keys = dict(zip(evolution.sources, jax.random.split(change_key, len(evolution.sources)), strict=True))

    def renewed(path: Any, x: Any) -> Any:
        role = role_of(agent, path)
        if role in COPIED:
            return x[parent]
        if role is not Role.HYPER:
            return x
        name, taken = field_of(path), x[parent]
        if name not in keys:
            return taken
        return explored(taken, copied, keys[name], evolution.sources[name], evolution.resample)

    return jax.tree_util.tree_map_with_path(renewed, state), parent


def scores_of(returns: Float[Array, "N K"]) -> Float[Array, "N"]:
    """Mean return of each member over a round; the lowest of all where no episode ended."""
    known = jnp.isfinite(returns)
    count = known.sum(axis=1)
    return jnp.where(count > 0, jnp.where(known, returns, 0).sum(axis=1) / jnp.maximum(count, 1), -jnp.inf)


def choose_parents(scores: Float[Array, "N"], key: Key[Array, ""], count: int) -> Int[Array, "N"]:
    """For each of the worst `count` members one of the best `count`, drawn; for others themselves."""
    order = jnp.argsort(scores, stable=True)
    drawn = jax.random.randint(key, (count,), 0, count)
    return jnp.arange(len(scores)).at[order[:count]].set(order[-count:][drawn])


def explored(
    x: Float[Array, "N"],
    copied: Bool[Array, "N"],
    key: Key[Array, ""],
    source: Range | Sequence[float],
    resample: float,
) -> Float[Array, "N"]:
    """The numbers with those of copied members changed."""
    return jnp.where(copied, changed(x, key, source, resample), x)


def changed(
    x: Float[Array, "N"], key: Key[Array, ""], source: Range | Sequence[float], resample: float
) -> Float[Array, "N"]:
    """Each number moved down or up, or drawn anew, within its source.

    On a logarithmic scale by the factors 0.8 and 1.25, on a linear one by a fifth of the range, in a list by one.
    """
    way_key, anew_key, place_key = jax.random.split(key, 3)
    up = jax.random.bernoulli(way_key, 0.5, x.shape)
    anew = jax.random.bernoulli(anew_key, resample, x.shape)
    place = jax.random.uniform(place_key, x.shape, x.dtype)
    if not isinstance(source, Range):
        values = jnp.asarray(sorted(source), x.dtype)
        at = jnp.argmin(jnp.abs(values - x[:, None]), axis=1)
        moved = jnp.clip(jnp.where(up, at + 1, at - 1), 0, len(values) - 1)
        return values[jnp.where(anew, (place * len(values)).astype(int), moved)]
    low, high = source.low, source.high
    if source.log:
        fresh, moved = low * (high / low) ** place, x * jnp.where(up, UP, DOWN)
    else:
        fresh, moved = low + (high - low) * place, x + (high - low) * jnp.where(up, STEP, -STEP)
    return jnp.clip(jnp.where(anew, fresh, moved), low, high)


def field_of(path: Sequence[Any]) -> str:
    """The name of the hyper-parameter that a leaf is."""
    return str(getattr(path[-1], "name", getattr(path[-1], "key", path[-1])))


def floats(agent: Agent, state: State) -> dict[str, Float[Array, "N"]]:
    """The hyper-parameters of all members, by name."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {field_of(path): x for path, x in leaves if role_of(agent, path) is Role.HYPER}


def _loop(
    run: Run, size: int, agent: Agent, many: Agent, backend: Backend, state: Any, done: int
) -> Iterator[Progress]:
    advance, seed, last = cast(Any, many.iterate), np.uint32(run.seed), run.config.num_iterations
    while done < last:
        compiles = backend.compiles()
        done += run.length
        # After the last round nobody is replaced: the states are those that had these returns.
        state, metrics = advance(state, seed, np.uint32(done), np.bool_(done < last))
        found = rows_first(backend.fetch(metrics), size)
        yield Progress(
            iteration=done,
            rows=summarise({name: x for name, x in found.items() if name != PARENT}),
            compiles=backend.compiles() - compiles,
            export=lambda state=state: _exported(agent, many, state),
            metrics=found,
            export_member=lambda index, state=state: agent.export(member(many, state, index)),
        )


def _exported(agent: Agent, many: Agent, state: State) -> Weights:
    """The states of all members and their floats."""
    kept = {f"{SEARCH}{name}": np.array(x) for name, x in floats(agent, state).items()}
    return many.export(state) | kept
