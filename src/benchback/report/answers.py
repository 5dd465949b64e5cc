"""The verdict for each choice of the page: a setting, an environment or all, a model or all, a family or all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchback.analysis.claims import ALL, Claim
from benchback.analysis.groups import Setting, reference_variant
from benchback.analysis.source import Source
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
    comparisons: Mapping[str, str]
    """Variant -> how it compares with the reference."""
    depends: tuple[str, ...] = ()


def answers(source: Source, claims: Sequence[Claim]) -> list[Answer]:
    """Every choice with an answer; the first one is that of the page before anything is chosen."""
    verdict = prose.verdict(source, claims)
    said = dict(zip(source.settings, verdict.settings, strict=True))
    found = []
    for backends in (tuple(measured(source)), *families(source).values()):
        for setting, env, model, part in _parts(source, claims, backends):
            answer = _answer(setting, env, model, backends, part)
            if env == model == ALL and backends == tuple(measured(source)):
                why = said[setting].why if found else verdict.recommendation
                answer = Answer(setting, env, model, backends, why, answer.comparisons, said[setting].depends)
            found.append(answer)
    return found


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


def _parts(
    source: Source, claims: Sequence[Claim], backends: Sequence[str]
) -> Iterator[tuple[Setting, str, str, list[Claim]]]:
    """Claims of the usual reference by setting, environment and model, among some backends."""
    found: dict[tuple[Setting, str, str], list[Claim]] = {}
    usual = {setting: reference_variant(groups) for setting, groups in source.settings.items()}
    for claim in claims:
        both = {str(cell.run["backend"]) for cell in (claim.subject, claim.rival)} <= set(backends)
        if both and not claim.subject.twin and claim.variant in source.main and claim.reference == usual[claim.setting]:
            found.setdefault((claim.setting, claim.env, claim.model), []).append(claim)
    for place, part in found.items():
        yield *place, part


def _answer(setting: Setting, env: str, model: str, backends: tuple[str, ...], claims: Sequence[Claim]) -> Answer:
    choice = prose.choose(claims)
    why = prose.recommendation(choice) if choice else "No recommendation: nothing can be compared."
    comparisons = {claim.variant: prose.sentence(claim) for claim in claims if claim.metric == "steady"}
    return Answer(setting, env, model, backends, why, comparisons)
