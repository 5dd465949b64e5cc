"""Specialisation: analyse, fold, prune and tidy until the program contains nothing that this choice does not need."""

import ast
from typing import Any

from benchback.tools.eject.analysis import Analysis
from benchback.tools.eject.arguments import Parameters
from benchback.tools.eject.fold import Folding
from benchback.tools.eject.knowledge import Facts
from benchback.tools.eject.link import Program
from benchback.tools.eject.prune import Fields, prune_definitions
from benchback.tools.eject.records import LinenModules, Unions, Wrappers, replace_by_bases, without_bare_annotations
from benchback.tools.eject.splice import Splicing, sink
from benchback.tools.eject.tidy import Inlining, Tidying

MEASURING = ("transfer_stats", "count_transfer")
"""Attributes with which an environment counts what it costs; a file to start from does not measure."""


def specialise(program: Program, entry: str, facts: Facts) -> None:
    """Reduce a linked program to what the entry needs, given the facts."""
    for definition in program.definitions.values():
        definition.node = _WithoutMeasuring().visit(definition.node)
    while True:
        changed, analysis = _step(program, entry, facts)
        if not changed and not _merge(program, analysis):
            break
    replace_by_bases(program, analysis.given_away)
    modules = LinenModules(program)
    for definition in program.definitions.values():
        definition.node = modules.visit(without_bare_annotations(definition.node))


def _step(program: Program, entry: str, facts: Facts) -> tuple[bool, Analysis]:
    """Fold and prune once; whether anything changed, and what was known before."""
    analysis = Analysis(program, entry, facts).run()
    folding, unions = Folding(program, analysis.cells), Unions(analysis)
    reached = [program.definitions[symbol] for symbol in analysis.reached]
    for definition in reached:
        definition.node = unions.visit(folding.visit(definition.node))
    changed = Parameters(analysis).remove() if not folding.changed else False
    changed |= Fields(analysis).remove()
    inlining, tidying = Inlining(analysis), Tidying()
    for definition in reached:
        definition.node = tidying.visit(inlining.visit(definition.node))
    changed |= prune_definitions(program, entry)
    return changed or folding.changed or unions.changed or inlining.changed or tidying.changed, analysis


def _merge(program: Program, analysis: Analysis) -> bool:
    """Put records and functions that are not needed as such where they are used; whether there was any."""
    if sink(analysis):
        return True
    for passes in (Wrappers(analysis), Splicing(analysis, patient=True), Splicing(analysis, patient=False)):
        for definition in program.definitions.values():
            definition.node = passes.visit(definition.node)
        if passes.changed:
            return True
    return False


class _WithoutMeasuring(ast.NodeTransformer):
    """Removes statements that only measure."""

    def _kept(self, node: Any) -> Any:
        measures = any(isinstance(x, ast.Attribute) and x.attr in MEASURING for x in ast.walk(node))
        return None if measures else node

    visit_Expr = visit_Assign = visit_AugAssign = _kept

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if node.name in MEASURING:
            return None
        self.generic_visit(node)
        return node
