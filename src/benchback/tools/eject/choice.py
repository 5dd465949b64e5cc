"""What is ejected for a run: which definitions take the place of others, and what is known from the outside."""

import ast
import re
from dataclasses import dataclass, fields
from typing import Any

from benchback import registry
from benchback.envs.ids import split
from benchback.errors import InputError
from benchback.tools.eject.fold import constant
from benchback.tools.eject.knowledge import Facts
from benchback.tools.eject.link import Definition, Program, module_path, symbol_of
from benchback.tools.eject.source import clone
from benchback.tools.eject.values import Const, Live
from benchback.training.run import Run

PARTS = "benchback.tools.eject.parts"
COMPILING = {
    "jit": f"{PARTS}.compiling.jit",
    "none": f"{PARTS}.compiling.none",
    "filter_jit": f"{PARTS}.filtering.filter_jit",
    "flatten": f"{PARTS}.filtering.flatten",
    "split": f"{PARTS}.compiling.jit",
}
"""Mode of the JAX family -> what compiles one function."""
WRAPPING = {
    "compile": (f"{PARTS}.torch_loop.compiling", f"{PARTS}.torch_loop.compile_gradients"),
    "env_jit": (f"{PARTS}.torch_loop.eager", f"{PARTS}.torch_loop.leave_gradients"),
}
"""Mode of torch -> what is put around its functions, and what comes first."""
EXTERNAL = "gymnasium"


@dataclass(frozen=True)
class Choice:
    """The run as the linker and the analysis need it."""

    run: Run
    suite: str
    name: str
    members: int = 1
    """Seeds that the file trains."""

    @property
    def array(self) -> str:
        """The annotation of an array."""
        return "Array" if self.run.framework == "jax" else "Tensor"

    @property
    def replaced(self) -> dict[str, str]:
        """Qualified name -> the one used in its place."""
        run, framework = self.run, self.run.framework
        algorithm = f"benchback.algorithms.{run.algorithm}"
        loop = f"{PARTS}.loop" if framework == "jax" else f"{PARTS}.torch_loop"
        names = {
            "benchback.errors.InputError": "builtins.ValueError",
            "benchback.agent.Agent": f"{loop}.Agent",
            "benchback.algorithms.ppo.config.Config": f"{algorithm}.config.Config",
            "benchback.algorithms.ppo.config.Hyper": f"{algorithm}.config.Hyper",
            f"{PARTS}.gymnax_{framework}.environment": f"{PARTS}.{self.suite}_{framework}.environment",
            "benchback.envs.gymnasium._made": f"{PARTS}.made.made",
            "benchback.envs.gymnasium._make": f"{PARTS}.made.one",
            "benchback.envs.gymnasium.space_notes": f"{PARTS}.made.no_notes",
            "benchback.math.jax.sharding.split_rows": f"{PARTS}.single.unsplit",
        }
        if self.members == 1:
            names["benchback.envs.any_member.any_member"] = f"{PARTS}.single.only_member"
        if self.suite == "gymnax" and _keeps_types(self.name):
            names["benchback.envs.vectorise._probe"] = f"{PARTS}.single.observation_shape"
            names["benchback.envs.vectorise._cast"] = f"{PARTS}.single.uncast"
        if self.suite == "torch":
            from benchback.envs.torch import MODULES

            names["benchback.envs.torch.cartpole.GAME"] = f"benchback.envs.torch.{MODULES[self.name]}.GAME"
        return names | self._network() | (self._jax() if framework == "jax" else self._torch())

    @property
    def implementation(self) -> str:
        """The module with the algorithm in the backend."""
        package = f"benchback.algorithms.{self.run.algorithm}"
        recurrent = getattr(self.run.config, "recurrent", False)
        return f"{package}.recurrent.{self.run.backend}" if recurrent else f"{package}.{self.run.backend}"

    def _network(self) -> dict[str, str]:
        """The class of the default network, which annotations name -> that of the chosen one."""
        for module in (self.implementation, f"benchback.backends.{self.run.backend}"):
            table = _classes(module)
            if self.network in table and self.network != "mlp":
                return {f"{module}.{table['mlp']}": f"{module}.{table[self.network]}"}
        return {}

    @property
    def network(self) -> str:
        """The name of the network."""
        return getattr(self.run.config, "network", "mlp")

    def _jax(self) -> dict[str, str]:
        run, loop = self.run, f"{PARTS}.loop"
        names = {
            "benchback.algorithms.ppo.linen.make": f"{self.implementation}.make",
            "benchback.backends.xla.agent": f"{loop}.agent",
            "benchback.backends.nnx.agent": f"{PARTS}.splitting.agent",
            f"{PARTS}.compiling.jit": COMPILING[run.compile_mode],
        }
        if self.members > 1:
            many = f"{PARTS}.many"
            names |= {f"{loop}.train": f"{many}.train", f"{loop}.mean_return": f"{many}.mean_return"}
            names |= {"benchback.backends.xla.agent": f"{many}.agent"}
            names |= {"benchback.backends.nnx.agent": f"{many}.split_agent"}
            names[f"{PARTS}.compiling.jit"] = COMPILING["none" if run.compile_mode == "none" else "jit"]
        if self.suite == EXTERNAL:
            names[f"{loop}.is_kept"] = f"{loop}.is_kept_but_episodes"
            names[f"{loop}.stored_at"] = f"{loop}.stored_or_new"
        if self.kind == "discrete":
            names[f"benchback.backends.{run.backend}.with_log_std"] = f"{PARTS}.single.without_log_std"
        return names

    def _torch(self) -> dict[str, str]:
        wrap, before = WRAPPING[self.run.compile_mode]
        loop, torch_loop = f"{PARTS}.loop", f"{PARTS}.torch_loop"
        loops = "rollout_steps", "remembering_steps"
        own = {f"benchback.backends.pytorch.{name}": f"{torch_loop}.{name}" for name in loops}
        # Here nothing else is carried through a compiled loop than the memory of a network.
        own["benchback.backends.pytorch._scan_in_program"] = f"{torch_loop}.scan_in_program"
        return (
            {
                "benchback.algorithms.ppo.pytorch.make": f"{self.implementation}.make",
                "benchback.algorithms.ppo.pytorch.State": f"{self.implementation}.State",
                "benchback.backends.torch_state.agent": f"{torch_loop}.agent",
                f"{loop}.train": f"{torch_loop}.train",
                f"{loop}.save": f"{torch_loop}.save",
                f"{torch_loop}.compiling": wrap,
                f"{torch_loop}.compile_gradients": before,
            }
            | (own if self.suite != "torch" else {})
            | self._flat_state(torch_loop)
            | (self._torch_members() if self.members > 1 else {})
        )

    def _flat_state(self, torch_loop: str) -> dict[str, str]:
        """Simpler functions for a State whose only tuple is that of the optimiser."""
        config = self.run.config
        nested = any(getattr(config, name, False) for name in ("normalise_obs", "normalise_reward", "replay_capacity"))
        names = {} if nested else {f"{torch_loop}.named": f"{torch_loop}.named_at_once"}
        if self._counters():
            names |= {f"{torch_loop}.load": f"{PARTS}.counting.load", f"{PARTS}.loop.save": f"{PARTS}.counting.save"}
        return names

    def _torch_members(self) -> dict[str, str]:
        """The loop of several members, and what is kept of a State that counts something."""
        many, counting = f"{PARTS}.torch_many", f"{PARTS}.counting"
        names = {f"{PARTS}.loop.{name}": f"{many}.{name}" for name in ("train", "mean_return", "save")}
        counted = ("kept", "put") if self._counters() else ()
        return names | {f"{many}.{name}": f"{counting}.{name}" for name in counted}

    @property
    def kind(self) -> str:
        """The kind of actions."""
        from benchback import envs

        return envs.kind(self.run.env)

    @property
    def config_symbol(self) -> str:
        """The symbol of the Config class."""
        return symbol_of(f"benchback.algorithms.{self.run.algorithm}.config", "Config")

    @property
    def hyper_symbol(self) -> str:
        """The symbol of the record of float hyper-parameters."""
        return symbol_of(f"benchback.algorithms.{self.run.algorithm}.config", "Hyper")

    def facts(self) -> Facts:
        """What is known from the outside: switches of the config, spaces of the environment, what torch compiles."""
        config = self.run.config
        switches = {f.name: getattr(config, f.name) for f in fields(config)}
        known = {name: Const(x) for name, x in switches.items() if isinstance(x, bool | str)}
        # Other loops than those of compiled programs are among the parts.
        calls = {"torch.compiler.is_dynamo_compiling": Const(self.run.compile_mode == "compile")}
        dtypes = {name: Const(self.sees_bytes) for name in ("jnp.uint8", "torch.uint8")}
        return Facts({self.config_symbol: known}, self._spaces(), calls, dtypes)

    @property
    def sees_bytes(self) -> bool:
        """Whether the network is given bytes."""
        if self.suite != EXTERNAL or getattr(self.run.config, "normalise_obs", False):
            return False
        import gymnasium

        return str(gymnasium.make(self.name).observation_space.dtype) == "uint8"

    def _spaces(self) -> dict[str, dict[str, Any]]:
        if self.suite == "torch":
            return {}
        module = f"benchback.envs.{self.suite}"
        if self.suite == EXTERNAL:
            import gymnasium

            environment = gymnasium.make(self.name)
            spaces = environment.action_space, environment.observation_space
            actions, observations = (Live(type(space).__name__) for space in spaces)
            spaces = {"actions_of": actions, "preparation": actions, "layout": observations, "encoding": observations}
            return {symbol_of(module, name): {"space": space} for name, space in spaces.items()}
        return {symbol_of(module, "_actions"): {"space": Live("Discrete" if self.kind == "discrete" else "Box")}}

    def prepare(self, program: Program) -> None:
        """Put the values of the run into the linked program."""
        for symbol, definition in program.definitions.items():
            if definition.module.startswith(PARTS) and definition.name == "NAME":
                definition.node.value = constant(self.name)
            elif definition.module.startswith(PARTS) and definition.name == "SEED":
                definition.node.value = ast.Constant(self.run.seed)
            elif definition.module.startswith(PARTS) and definition.name in ("MEMBERS", "COUNTERS"):
                value = self.members if definition.name == "MEMBERS" else self._counters()
                definition.node.value = ast.parse(repr(value), mode="eval").body
            elif symbol == self.config_symbol:
                self._put_defaults(definition.node)
                _give_floats(definition.node, program.definitions[self.hyper_symbol])

    def _counters(self) -> tuple[str, ...]:
        """Fields of the State that are the same for all members."""
        path = module_path(self.implementation)
        return tuple(re.findall(r"^ +(\w+): Counter\[", path.read_text(), re.MULTILINE)) if path else ()

    def _put_defaults(self, node: ast.ClassDef) -> None:
        config: Any = self.run.config
        # Values are checked where a user of this package gives them; in the file they are its owner's.
        node.body = [x for x in node.body if not (isinstance(x, ast.FunctionDef) and x.name == "__post_init__")]
        hidden = next(x for x in node.body if isinstance(x, ast.FunctionDef) and x.name == "hidden")
        sizes = "hidden_sizes"
        hidden.body[-1] = ast.parse(f"return self.{sizes}").body[0]
        for place, x in enumerate(node.body):
            if not isinstance(x, ast.AnnAssign) or not isinstance(x.target, ast.Name) or x.value is None:
                continue
            value = config.hidden if x.target.id == sizes else getattr(config, x.target.id)
            if value != ast.literal_eval(x.value):
                x.value = ast.parse(repr(value), mode="eval").body
            if x.target.id == sizes:
                node.body[place + 1] = clone(hidden.body[0])


def _give_floats(config: ast.ClassDef, record: Definition) -> None:
    """Move floats from the Config to the record of them that a State contains: the file needs them only once."""
    described, hyper = _described(config.body), record.node
    for place, x in reversed(list(enumerate(hyper.body))):
        if isinstance(x, ast.AnnAssign):
            field, *said = described.pop(ast.unparse(x.target))
            x.value = field.value
            hyper.body[place : place + 1] = [x, *said]
            config.body = [y for y in config.body if y is not field and y not in said]
    place = max(i for i, x in enumerate(config.body) if isinstance(x, ast.AnnAssign)) + 2
    config.body = [x for x in config.body if not (isinstance(x, ast.FunctionDef) and x.name == "hyper")]
    config.body[place:place] = ast.parse(f"hyper: {record.symbol} = {record.symbol}()").body


def _keeps_types(name: str) -> bool:
    """Whether the state of a gymnax environment has the same types after a reset as after a step."""
    import gymnax
    import jax

    environment, params = gymnax.make(name)

    def both(key: Any) -> tuple[Any, Any, Any]:
        obs, first = environment.reset_env(key, params)
        action = environment.action_space(params).sample(key)
        return obs, first, environment.step_env(key, first, action, params)[1]

    obs, first, second = jax.eval_shape(both, jax.random.key(0))
    kinds = [[(x.dtype, x.weak_type) for x in jax.tree.leaves(state)] for state in (first, second)]
    return kinds[0] == kinds[1] and obs.shape == environment.observation_space(params).shape


def _classes(module: str) -> dict[str, str]:
    """Name of a network -> its class, of the networks of a module that are classes."""
    path = module_path(module)
    for x in ast.parse(path.read_text()).body if path else ():
        match x:
            case ast.Assign(targets=[ast.Name("NETWORKS")], value=ast.Call(keywords=keywords)):
                return {y.arg: y.value.id for y in keywords if y.arg and isinstance(y.value, ast.Name)}
    return {}


def _described(body: list[ast.stmt]) -> dict[str, list[Any]]:
    """Fields of a class by name, each with the string that describes it."""
    found: dict[str, list[Any]] = {}
    last: list[Any] = []
    for x in body:
        if isinstance(x, ast.AnnAssign):
            last = found[ast.unparse(x.target)] = [x]
        elif isinstance(x, ast.Expr):
            last.append(x)
    return found


def choose(run: Run, members: int = 1) -> Choice:
    """The choice that a run and a number of seeds mean; InputError if it cannot be ejected."""
    suite, name, wrappers = split(run.env)
    if wrappers:
        raise InputError(f"env={run.env} cannot be ejected: wrappers are not; use --env {split(run.env).base}")
    if module_path(f"{PARTS}.{suite}_{run.framework}") is None:
        raise InputError(f"env={run.env} cannot be ejected; use a gymnax, torch or gymnasium environment")
    modes = COMPILING if run.framework == "jax" else WRAPPING
    known = [mode for mode in registry.BACKENDS[run.backend].modes if mode in modes]
    if run.compile_mode not in known:
        raise InputError(f"mode={run.compile_mode} cannot be ejected; use --mode {' or '.join(known)}")
    if run.unit != "phase":
        raise InputError(f"unit={run.unit} cannot be ejected; use --unit phase, or fuse the two calls in the file")
    if getattr(run.config, "exploration", "linear") != "linear":
        raise InputError(f"exploration={run.config.exploration} cannot be ejected; use --exploration linear")
    if run.framework == "jax" and run.config.dtype != "float32":
        raise InputError(f"dtype={run.config.dtype} cannot be ejected in JAX; use --dtype float32")
    if (network := getattr(run.config, "network", "mlp")) not in registry.NETWORKS.built_in:
        raise InputError(f"network={network} cannot be ejected: it is of a plug-in; use --network mlp")
    if getattr(run.config, "objective", ()):
        raise InputError("surrogate=learned cannot be ejected: its weights are a file; use --surrogate drift or clip")
    if run.gradients != "framework":
        raise InputError(f"gradients={run.gradients} cannot be ejected; use --gradients framework")
    if members < 1:
        raise InputError(f"population={members} has no members; choose at least 1")
    if members > 1 and suite == EXTERNAL:
        raise InputError(
            f"population={members} does not fit env={run.env}: an environment in Python has one state for all members; "
            "use a gymnax or torch environment, or eject one agent and run it once for each seed"
        )
    return Choice(run, suite, name, members)
