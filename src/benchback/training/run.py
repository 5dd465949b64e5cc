"""A run: everything that determines one training, the agent it builds, and its fields as plain data.

Importing this module imports neither jax nor torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, get_args, get_origin, runtime_checkable

from benchback import envs, registry
from benchback.agent import Agent, Backend, Gradients
from benchback.errors import InputError, hint
from benchback.plugins.imports import import_all


@runtime_checkable
class AlgorithmConfig(Protocol):
    """The part of an algorithm's Config (a frozen dataclass) that the training loop uses."""

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
    def iterations_before_learning(self) -> int: ...
    @property
    def network_rows(self) -> Any: ...
    @property
    def hidden(self) -> tuple[int, ...]: ...
    @property
    def hyper(self) -> Any: ...
    def for_evaluation(self, num_envs: int) -> Any: ...


Config = TypeVar("Config", bound=AlgorithmConfig)


@dataclass(frozen=True)
class Run(Generic[Config]):
    """Everything that determines a training run; the type of `config` selects the algorithm."""

    config: Config
    env: str = "gymnax/CartPole-v1"
    """Environment as suite/name; `benchback list` shows them."""
    backend: str = registry.DEFAULT_BACKEND
    """Framework: linen, nnx, equinox, haiku, purejax or pytorch."""
    mode: str = "best"
    """What compiles it; `benchback list` shows each backend's modes and its best."""
    unit: str = "phase"
    """How much one program covers: phase, iteration or chunk."""
    chunk: int = 10
    """Iterations per program in unit chunk; must divide the iterations of the run."""
    gradients: Gradients = "framework"
    """Gradients of kernels: as the framework computes them, or in JAX reordered, faster on a CPU."""
    seed: int = 0
    """Seed of weights, environment, actions and shuffles."""
    imports: tuple[str, ...] = ()
    """Modules to import before anything is looked up by name, as --import does."""

    def __post_init__(self) -> None:
        import_all(self.imports)
        registry.choose("backend", self.backend, registry.BACKENDS)
        registry.check_pair(self.algorithm, self.backend)
        registry.check_execution(self.backend, self.compile_mode, self.unit)
        registry.check_gradients(self.backend, self.gradients, self.network)
        registry.check_network(self.network, self.backend, self.algorithm)
        envs.check(self.env)
        about = envs.about(self.env)
        registry.check_actions(self.algorithm, self.env, about.kind)
        registry.check_image(self.network, self.env, about.image)
        if self.framework == "jax" and about.where == "torch":
            twin = f", or gymnax/{self.env[6:]}" if self.env.startswith("torch/") else ""
            raise InputError(f"env={self.env} is native to PyTorch; use --backend pytorch{twin}")
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
    def network(self) -> str:
        """Kind of network; of an algorithm that offers no choice, multi-layer perceptrons."""
        return getattr(self.config, "network", "mlp")

    @property
    def framework(self) -> Literal["jax", "torch"]:
        """The array framework of the backend: jax or torch."""
        return registry.BACKENDS[self.backend].family

    @property
    def compile_mode(self) -> str:
        """Name of the compile mode, with `best` resolved."""
        return registry.BACKENDS[self.backend].best if self.mode == "best" else self.mode

    @property
    def length(self) -> int:
        """Iterations per program call."""
        return self.chunk if self.unit == "chunk" else 1

    def to_dict(self) -> dict[str, Any]:
        """The run as a flat JSON-serialisable dictionary; inverse of `Run.from_dict`."""
        flat = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("config", "imports")}
        flat = {"algorithm": self.algorithm} | flat | {"mode": self.compile_mode}
        if self.imports:  # left out otherwise, as in runs from before there were any: their cells keep their ids
            flat["imports"] = list(self.imports)
        later = getattr(self.config, "later", ())
        usual = {f.name: f.default for f in fields(self.config) if f.name in later}
        own = {name: x for name, x in asdict(self.config).items() if name not in usual or x != usual[name]}
        return flat | {name: list(x) if isinstance(x, tuple) else x for name, x in own.items()}

    @classmethod
    def from_dict(cls, flat: dict[str, Any], others: Iterable[str] = ()) -> "Run":
        """The run with these fields; InputError suggests the name that an unknown one means, or one of the others."""
        if isinstance(modules := flat.get("imports"), list | tuple):
            import_all(modules)  # first: the algorithm may be one that they register
        named = flat.get("algorithm", registry.DEFAULT_ALGORITHM)
        algorithm = registry.choose("algorithm", named, registry.ALGORITHMS)
        flat = {name: x for name, x in flat.items() if name != "algorithm"}
        config_class = registry.config(algorithm)
        flat = {"env": registry.ALGORITHMS[algorithm].env} | flat
        own = {f.name: f for f in fields(cls) if f.name != "config"}
        known = own | {f.name: f for f in fields(config_class)}
        for name in flat:
            if name not in known:
                raise InputError(f"{name[:60]} is not a field of a {algorithm} run; {hint(name, [*known, *others])}")
        values = {name: typed(known[name], x) for name, x in flat.items()}
        config = config_class(**{name: x for name, x in values.items() if name not in own})
        return cls(config=config, **{name: x for name, x in values.items() if name in own})


def build(run: Run) -> tuple[Agent, Backend]:
    """The run's agent, with its unit and compile mode applied."""
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    env = environment(run, run.config.num_envs)
    return registry.execute(make(run.config, env), backend, run.compile_mode, run.unit, run.length), backend


def environment(run: Run, num_envs: int, render_mode: str | None = None) -> envs.Env:
    """`num_envs` copies of the run's environment; InputError if its actions or observations do not suit the agent."""
    env = envs.make(run.env, num_envs, run.framework, render_mode)
    registry.check_actions(run.algorithm, run.env, env.actions.kind)
    registry.check_observations(run.network, run.env, env.observation_shape)
    return env


def whole_number(text: str) -> int:
    """The whole number that is written as 1000, 1_000 or 1e3; ValueError for anything else."""
    try:
        return int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"{text[:40]!r} is not a whole number") from None
    if not number.is_integer():
        raise ValueError(f"{text[:40]} is not a whole number")
    return int(number)


def typed(field: Field, value: Any) -> Any:
    """`value` converted to the type of a dataclass field (list to tuple, int to float); InputError if impossible."""
    choices = get_args(field.type)
    if value is None and NoneType in choices:
        return None
    kind = _kind(field.type)
    if kind is tuple and isinstance(value, list | tuple):
        return tuple(_element(field, x) for x in value)
    if kind is float and type(value) is int:
        return _float(field, value)
    if kind is int and type(value) is float and value.is_integer():
        return int(value)
    if not (isinstance(value, kind) if kind is Mapping else type(value) is kind):
        example = "" if field.default in (MISSING, None, ()) else f", e.g. {field.default!r}"
        name = {tuple: "list, e.g. [64, 64]", Mapping: "mapping"}.get(kind, kind.__name__)
        raise InputError(f"{field.name}={value!a:.80} must be of type {name}{example}")
    if get_origin(field.type) is Literal and value not in choices:
        raise InputError(f"{field.name}={value} is unknown; {hint(value, choices)}")
    return value


def _element(field: Field, value: Any) -> Any:
    """An element of a tuple, a whole number where the field has those."""
    kind = next((kind for kind in (int, float, str) if f"tuple[{kind.__name__}" in str(field.type)), object)
    if kind is int and type(value) is float and value.is_integer():
        return int(value)
    if kind is float and type(value) is int:
        return _float(field, value)
    if kind is not object and type(value) is not kind:
        raise InputError(f"{field.name}: {value!a:.80} must be of type {kind.__name__}")
    return value


def _float(field: Field, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{field.name}={str(value)[:20]}... must be less than 1e38") from None


def _kind(annotation: Any) -> type:
    """Class of an annotation: tuple for `tuple[int, ...] | None`; for a Literal, the class of its first value."""
    if get_origin(annotation) is Literal:
        return type(get_args(annotation)[0])
    if isinstance(annotation, UnionType):
        return _kind(next(x for x in get_args(annotation) if x is not NoneType))
    return get_origin(annotation) or annotation
