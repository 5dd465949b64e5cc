"""The verdict for each choice of the page: a setting, an environment or all, a model or all, a family or all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchback.analysis.claims import Claim, all_claims
from benchback.analysis.groups import Setting
from benchback.analysis.source import Source
from benchback.analysis.wording import setting_text
from benchback.registry import BACKENDS
from benchback.report import prose

FAMILIES = {"jax": "JAX", "torch": "PyTorch"}
"""Array frameworks, for people."""


@dataclass(frozen=True)
class Answer:
    """What is said when this is chosen."""

    setting: Setting
    env: str
    model: str
    backends: tuple[str, ...]
    """Backends that were chosen from."""
    recommendation: str
    said: prose.Said


def answers(source: Source, claims: Sequence[Claim]) -> list[Answer]:
    """Every choice with an answer; the first one is that of the page before anything is chosen."""
    found = list(_answers(source, claims, tuple(measured(source))))
    for backends in families(source).values():
        alone = among(source, backends)
        found += _answers(alone, all_claims(alone), backends)
    return found


def _answers(source: Source, claims: Sequence[Claim], backends: tuple[str, ...]) -> Iterator[Answer]:
    settings = {setting_text(setting): setting for setting in source.settings}
    for (env, model), verdict in prose.verdicts(source, claims).items():
        for said in verdict.settings:
            # That of the first setting says where others differ.
            why = verdict.recommendation if said is verdict.settings[0] else said.recommendation
            yield Answer(settings[said.setting], env, model, backends, why, said)


def measured(source: Source) -> list[str]:
    """Backends of a campaign, in order of mention."""
    return list(dict.fromkeys(str(cell.run["backend"]) for cell in source.cells.values()))


def families(source: Source) -> dict[str, tuple[str, ...]]:
    """Families that a reader may want to see alone: several backends beside one of another family."""
    found: dict[str, list[str]] = {}
    for backend in measured(source):
        family = BACKENDS[backend].family if backend in BACKENDS else ""
        found.setdefault(FAMILIES.get(family, ""), []).append(backend)
    return {name: tuple(x) for name, x in found.items() if name and len(x) > 1} if len(found) > 1 else {}


def among(source: Source, backends: Sequence[str]) -> Source:
    """The same campaign as if only these backends had been measured."""
    cells = {id: cell for id, cell in source.cells.items() if cell.run["backend"] in backends}
    groups = [group.only(*(cell for cell in group.cells if cell.id in cells)) for group in source.groups]
    runs = tuple(run for run in source.runs if run.cell.id in cells)
    return replace(source, cells=cells, runs=runs, groups=tuple(group for group in groups if group.cells))
