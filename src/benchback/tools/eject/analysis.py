"""What is known of every expression of a program: an interpreter over `values.py`, from optimistic to certain.

Every function is looked at once for all its calls. Nothing is assumed of what libraries call: functions given to them
get any arguments of their annotated types, except where the library's rule is simple (`jax.lax.cond`). Each round looks
at everything that the entry reaches, and rounds are repeated until nothing new is learnt; so what a loop feeds back
into itself, e.g. a normaliser that is always `()`, is recognised as constant.
"""

import ast
from typing import Any

from benchback.tools.eject.expressions import Expressions
from benchback.tools.eject.knowledge import TRANSPARENT, Frame, annotations, parameters
from benchback.tools.eject.link import bound_names
from benchback.tools.eject.values import (
    TOP,
    UNSEEN,
    Const,
    Function,
    Instance,
    Items,
    Unseen,
    Wrapped,
    join,
    truth,
)


class Analysis(Expressions):
    """Knowledge of a program; after `run`, every expression that can be reached has its value as `known`."""

    def run(self) -> "Analysis":
        """Look at everything that the entry reaches until nothing new is learnt."""
        while True:
            self._round()
            if self.changed:
                continue
            if not self._give_up_on_unseen():
                return self

    def _round(self) -> None:
        self.changed = False
        self.sites, self.constructions, self.reached, self.read_unseen = [], [], [], set()
        self.globals = {}
        self.mention(self.entry)
        for symbol in self.reached:  # grows while it is walked
            self._look_at(symbol)

    def _give_up_on_unseen(self) -> bool:
        """Take what no code computes for anything; whether there was any."""
        found = False
        for values in self.params.values():
            for name, value in values.items():
                if isinstance(value, Unseen):
                    values[name], found = TOP, True
        for symbol, name in self.read_unseen:
            if isinstance(self.fields[symbol].get(name, UNSEEN), Unseen):
                self.fields[symbol][name], found = TOP, True
        return found

    def _look_at(self, symbol: str) -> None:
        node = self.program.definitions[symbol].node
        if isinstance(node, ast.FunctionDef):
            self.look_into(node, None)
        elif isinstance(node, ast.ClassDef):
            self._class(symbol, node)
        else:
            self.global_value(symbol)
        for rider in self.program.definitions[symbol].riders:
            if isinstance(rider, ast.FunctionDef):
                self.escaped.add(rider)
                self.look_into(rider, None)
            elif not isinstance(rider.value, ast.Constant):  # type: ignore[attr-defined]
                self.see(rider.value, {}, None)  # type: ignore[attr-defined]

    def _class(self, symbol: str, node: ast.ClassDef) -> None:
        self.fields.setdefault(symbol, {})
        for base in (*node.bases, *node.decorator_list):
            self.see(base, {}, None)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self.owners[statement] = symbol
                self.look_into(statement, None)
            elif isinstance(statement, ast.AnnAssign):
                self.see(statement.annotation, {}, None)
                if statement.value:
                    self.see(statement.value, {}, None)
            elif isinstance(statement, ast.Assign):
                self.see(statement.value, {}, None)

    def look_into(self, node: Any, parent: Frame | None) -> None:
        frame = self.frames.get(node) or Frame(node, parent, bound_names(node))
        self.frames[node] = frame
        self.params.setdefault(node, {})
        env = {name: self.param(node, name) for name in parameters(node)}
        for name, value in env.items():
            self._remember(frame, name, value)
        frame.nested = []
        for annotation in annotations(node):
            self.see(annotation, {}, None)
        if isinstance(node, ast.Lambda):
            self._returns(node, self.see(node.body, env, frame))
        else:
            for decorator in node.decorator_list:
                self.see(decorator, {}, frame.parent)
            if not self.execute(node.body, env, frame):
                self._returns(node, Const(None))
        for inner in frame.nested:  # grows while it is walked
            self.look_into(inner, frame)

    def execute(self, statements: list[ast.stmt], env: dict[str, Any], frame: Frame) -> bool:
        """Go through statements; whether they always return or raise."""
        return any(self._statement(statement, env, frame) for statement in statements)

    def _statement(self, node: Any, env: dict[str, Any], frame: Frame) -> bool:
        match node:
            case ast.Return():
                self._returns(frame.node, self.see(node.value, env, frame) if node.value else Const(None))
                return True
            case ast.Raise():
                if node.exc:
                    self.see(node.exc, env, frame)
                return True
            case ast.Assign():
                value = self.see(node.value, env, frame)
                for target in node.targets:
                    self.bind(target, value, env, frame)
            case ast.AnnAssign():
                self.see(node.annotation, env, frame)
                if node.value:
                    self.bind(node.target, self.see(node.value, env, frame), env, frame)
            case ast.AugAssign():
                self.see(node.value, env, frame)
                self.bind(node.target, TOP, env, frame)
            case ast.FunctionDef():
                self._nested(node, env, frame)
            case ast.If():
                return self._branch(node, env, frame)
            case ast.For() | ast.While():
                self._loop(node, env, frame)
            case ast.With():
                for item in node.items:
                    self.see(item.context_expr, env, frame)
                    if item.optional_vars:
                        self.bind(item.optional_vars, TOP, env, frame)
                return self.execute(node.body, env, frame)
            case ast.Try():
                done = self.execute(node.body, env, frame)
                for handler in node.handlers:
                    self.execute(handler.body, dict(env), frame)
                self.execute(node.finalbody, env, frame)
                return done and not node.handlers
            case _:
                for child in ast.iter_child_nodes(node):
                    self.see(child, env, frame)
        return False

    def _nested(self, node: ast.FunctionDef, env: dict[str, Any], frame: Frame) -> None:
        frame.nested.append(node)
        value: Any = Function(node)
        if any(ast.unparse(x).partition("(")[0] not in TRANSPARENT for x in node.decorator_list):
            self.escape(value)
            value = Wrapped(node)
        self.bind(ast.Name(node.name, ast.Store()), value, env, frame)

    def _branch(self, node: ast.If, env: dict[str, Any], frame: Frame) -> bool:
        test = self.see(node.test, env, frame)
        if isinstance(test, Unseen):
            return False
        known = truth(test)
        if known is not None:
            return self.execute(node.body if known else node.orelse, env, frame)
        other = dict(env)
        ends, other_ends = self.execute(node.body, env, frame), self.execute(node.orelse, other, frame)
        if ends and not other_ends:
            env.clear()
            env.update(other)
        elif not ends and not other_ends:
            env |= {name: join(env.get(name, UNSEEN), other.get(name, UNSEEN)) for name in {*env, *other}}
        return ends and other_ends

    def _loop(self, node: Any, env: dict[str, Any], frame: Frame) -> None:
        if isinstance(node, ast.For):
            self.iterate(self.see(node.iter, env, frame))
        for _ in range(3):
            before = dict(env)
            if isinstance(node, ast.For):
                self.bind(node.target, TOP, env, frame)
            else:
                self.see(node.test, env, frame)
            self.execute(node.body, env, frame)
            env |= {name: join(env[name], before.get(name, UNSEEN)) for name in env}

    def bind(self, target: Any, value: Any, env: dict[str, Any], frame: Frame | None) -> None:
        """Assign a value to a target."""
        match target:
            case ast.Name():
                env[target.id] = value
                if frame:
                    self._remember(frame, target.id, value)
            case ast.Tuple() | ast.List():
                items = value.items if isinstance(value, Items) else ()
                starred = any(isinstance(x, ast.Starred) for x in target.elts)
                if starred or len(items) != len(target.elts):
                    self.iterate(value)
                    items = [UNSEEN if isinstance(value, Unseen) else TOP] * len(target.elts)
                for x, item in zip(target.elts, items, strict=True):
                    self.bind(x.value if isinstance(x, ast.Starred) else x, item, env, frame)
            case ast.Attribute():
                owner = self.see(target.value, env, frame)
                if isinstance(owner, Instance):
                    self.store(owner.symbol, target.attr, value)
                else:
                    self.escape(value)
            case _:
                self.escape(value)
                for child in ast.iter_child_nodes(target):
                    self.see(child, env, frame)
