"""The training loop, one for all backends, and greedy evaluation beside it.

The loop is a generator: it yields after every call of a compiled program, and whoever drives it shows,
stores or times. Importing this module imports neither jax nor torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import Field, asdict, dataclass, fields, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, get_args, get_origin, runtime_checkable

import numpy as np

from benchback import envs, registry
from benchback.agent import Agent, Backend, Weights
from benchback.checkpoint import Checkpoint, CheckpointError
from benchback.errors import InputError


@runtime_checkable
class AlgorithmConfig(Protocol):
    """What the loop must know of an algorithm's Config, a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    algorithm: ClassVar[str]

    @property
    def num_envs(self) -> int: ...
    @property
    def num_iterations(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def updates_per_iteration(self) -> int: ...
    @property
    def gradient_rows(self) -> int: ...
    @property
    def hidden(self) -> tuple[int, ...]: ...
    def playing(self, num_envs: int) -> Any: ...


Config = TypeVar("Config", bound=AlgorithmConfig)


@dataclass(frozen=True)
class Run(Generic[Config]):
    """Everything that determines a training run; the algorithm is that of its config."""

    config: Config
    env: str = "gymnax/CartPole-v1"
    """Environment as suite/name; `benchback list` shows them."""
    backend: str = "linen"
    """Framework: linen, nnx, equinox, haiku, purejax or pytorch."""
    mode: str = "best"
    """What compiles it; `benchback list` shows each backend's modes and its best."""
    unit: str = "phase"
    """How much one program covers: phase, iteration or chunk."""
    chunk: int = 10
    """Iterations per program in unit chunk; must divide the iterations of the run."""
    seed: int = 0
    """Seed of weights, environment, actions and shuffles."""

    def __post_init__(self) -> None:
        registry.choose("backend", self.backend, registry.BACKENDS)
        registry.check_execution(self.backend, self.compile_mode, self.unit)
        envs.check(self.env)
        registry.check_actions(self.algorithm, self.env, envs.kind(self.env))
        if self.framework == "jax" and self.env.startswith("torch/"):
            raise InputError(f"env={self.env} is native to PyTorch; use --backend pytorch, or gymnax/{self.env[6:]}")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed={self.seed} must lie between 0 and {2**32 - 1}")
        if self.unit == "chunk" and (self.chunk < 1 or self.config.num_iterations % self.chunk):
            raise InputError(
                f"chunk={self.chunk} does not divide the {self.config.num_iterations} iterations; "
                f"choose a divisor, e.g. {self.config.num_iterations} for one program"
            )

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return self.config.algorithm

    @property
    def framework(self) -> Literal["jax", "torch"]:
        """The array framework of the backend: jax or torch."""
        return registry.BACKENDS[self.backend].family

    @property
    def compile_mode(self) -> str:
        """The mode by its own name, also where the best was asked for."""
        return registry.BACKENDS[self.backend].best if self.mode == "best" else self.mode

    @property
    def length(self) -> int:
        """Iterations one call covers."""
        return self.chunk if self.unit == "chunk" else 1

    def to_dict(self) -> dict[str, Any]:
        """Flat and JSON-able; `Run.from_dict` is its inverse."""
        flat = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "config"}
        flat = {"algorithm": self.algorithm} | flat | {"mode": self.compile_mode}
        return flat | {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self.config).items()}

    @classmethod
    def from_dict(cls, flat: dict[str, Any]) -> "Run":
        """The run whose fields are given flat; unknown names are refused with the nearest known one."""
        algorithm, flat = flat.get("algorithm", "ppo"), {k: v for k, v in flat.items() if k != "algorithm"}
        config_class = registry.config(algorithm)
        flat = {"env": registry.ALGORITHMS[algorithm].env} | flat
        own = {f.name: f for f in fields(cls) if f.name != "config"}
        known = own | {f.name: f for f in fields(config_class)}
        for name in flat:
            if name not in known:
                near = registry.nearest(name, known)
                raise InputError(f"{name} is not a field of a {algorithm} run; did you mean {near}?")
        values = {name: _typed(known[name], x) for name, x in flat.items()}
        config = config_class(**{name: x for name, x in values.items() if name not in own})
        return cls(config=config, **{name: x for name, x in values.items() if name in own})


@dataclass(frozen=True)
class Progress:
    """Where training stands after one call of its program."""

    iteration: int
    """Iterations done."""
    rows: list[dict[str, float]]
    """Metrics of the iterations this call covered, oldest first."""
    compiles: int
    """Programs compiled during this call."""
    export: Callable[[], Weights]
    """Copies the state out; only valid until training goes on."""


def build(run: Run) -> tuple[Agent, Backend]:
    """The run's agent, fused and compiled as it asks."""
    make, backend = registry.load(run.algorithm, run.backend)
    env = environment(run, run.config.num_envs)
    return registry.execute(make(run.config, env), backend, run.compile_mode, run.unit, run.length), backend


def environment(run: Run, num_envs: int) -> envs.Env:
    """`num_envs` copies of the run's environment, whose actions its algorithm can take."""
    env = envs.make(run.env, num_envs, run.framework)
    registry.check_actions(run.algorithm, run.env, env.actions.kind)
    return env


def train(run: Run, checkpoint: Checkpoint | None = None) -> Iterator[Progress]:
    """Train from the start, or from where `checkpoint` stands, to the last iteration.

    What cannot run is refused here; the work happens as the iterator is driven.
    """
    start = checkpoint.iteration if checkpoint else 0
    remaining = run.config.num_iterations - start
    if remaining < 0 or remaining % run.length:
        raise InputError(
            f"{start} of {run.config.num_iterations} iterations are done, and programs of {run.length} do not "
            "lead to the end; choose another --num-iterations, --chunk or --unit"
        )
    agent, backend = build(run)
    state = agent.init(run.seed, transplantable(run, checkpoint) if checkpoint else None)
    return _loop(run, agent, backend, state, start)


def _loop(run: Run, agent: Agent, backend: Backend, state: Any, iteration: int) -> Iterator[Progress]:
    while iteration < run.config.num_iterations:
        compiles = backend.compiles()
        state, metrics = advance(agent, state)
        iteration += run.length
        rows = _rows(backend.fetch(metrics), run.length)
        # The lambda must see this state: the next call may consume it.
        yield Progress(iteration, rows, backend.compiles() - compiles, lambda state=state: agent.export(state))


def advance(agent: Agent, state: Any) -> tuple[Any, Any]:
    """One call of the agent's program, whatever it covers."""
    if agent.iterate is not None:
        return agent.iterate(state)
    state, batch = agent.rollout(state)
    return agent.update(state, batch)


def transplantable(run: Run, checkpoint: Checkpoint) -> Weights:
    """What of the checkpoint this run can take over: all of it, or network and optimiser from another family."""
    theirs = Run.from_dict(checkpoint.run)
    if theirs.config.hidden != run.config.hidden or theirs.env.partition("/")[2] != run.env.partition("/")[2]:
        raise CheckpointError(
            f"the checkpoint is of {theirs.env} with layers {theirs.config.hidden}, the run of {run.env} with "
            f"{run.config.hidden}; train with the same env and hidden sizes"
        )
    for switch in ("normalise_obs", "normalise_reward"):
        if (was := getattr(theirs.config, switch, False)) != getattr(run.config, switch, False):
            flag = ("--" if was else "--no-") + switch.replace("_", "-")
            raise CheckpointError(f"the checkpoint's networks learnt with {switch}={was}; go on with {flag}")
    if (theirs.framework, theirs.env, theirs.config.num_envs) == (
        run.framework,
        run.env,
        run.config.num_envs,
    ):
        return checkpoint.weights
    return network_of(checkpoint.weights)


NOISE_STEPS = 128
"""Steps whose randomness an evaluation draws at once."""


def evaluate(run: Run, weights: Weights, episodes: int, seed: int = 0, max_steps: int = 100_000) -> np.ndarray:
    """Returns of the first episode in each of `episodes` environments, acting greedily; NaN where unfinished."""
    make, backend = registry.load(run.algorithm, run.backend)
    env = environment(run, episodes)
    agent = make(run.config.playing(episodes), env)

    def play(state: Any, scene: Any) -> Any:
        env_state, noise = scene
        return env.step(env_state, agent.act(state, env_state.obs), noise)

    # Compiled as one function, policy and environment together.
    player = backend.modes[run.compile_mode](replace(agent, act=play))
    state = player.init(seed, network_of(weights, replay=False))
    env_state = env.reset(env.random(seed))
    returns, running = np.full(episodes, np.nan), np.ones(episodes, bool)
    for t in range(max_steps):
        if t % NOISE_STEPS == 0:
            noise = env.draw(env.random(seed + 1 + t // NOISE_STEPS), NOISE_STEPS)
        env_state, step = player.act(state, (env_state, noise[t % NOISE_STEPS]))
        outcome = {"done": step.terminated | step.truncated, "episode_return": step.episode_return}
        outcome = backend.fetch(outcome)
        ended = running & outcome["done"].astype(bool)
        returns[ended] = outcome["episode_return"][ended]
        running &= ~ended
        if not running.any():
            break
    return returns


def network_of(weights: Weights, replay: bool = True) -> Weights:
    """Networks, optimisers and what was learnt beside them, without the environment and the random stream."""
    left = ("env/", "rng", "normaliser/ongoing_return") + (() if replay else ("replay/",))
    return {name: x for name, x in weights.items() if not name.startswith(left)}


def _rows(metrics: dict[str, np.ndarray], length: int) -> list[dict[str, float]]:
    columns = {name: np.broadcast_to(x, (length,)) for name, x in sorted(metrics.items())}
    return [{name: float(column[i]) for name, column in columns.items()} for i in range(length)]


def _typed(field: Field, value: Any) -> Any:
    """`value` as the type of the field's default, or an InputError."""
    if isinstance(field.default, tuple) and isinstance(value, list | tuple):
        return tuple(value)
    if type(field.default) is float and type(value) is int:
        return float(value)
    if type(value) is not type(field.default):
        kind = type(field.default).__name__
        raise InputError(f"{field.name}={value!r} must be of type {kind}, e.g. {field.default!r}")
    choices = get_args(field.type)
    if get_origin(field.type) is Literal and value not in choices:
        raise InputError(f"{field.name}={value} is unknown; did you mean {registry.nearest(value, choices)}?")
    return value
