"""`benchback conform`: whether an environment keeps the laws that every environment must keep."""

import json
from dataclasses import dataclass

from benchback.cli.arguments import Imports, limit_threads, parse_named, tell_notes
from benchback.errors import InputError


@dataclass(frozen=True)
class ConformFlags:
    """Play an environment and check every law; exit code 1 if one is broken."""

    limit: int | None = None
    """Steps after which an episode is truncated; 0 if none ever is."""
    starts: int | None = None
    """Number of states in which an episode may begin, where there are few; 1 if all begin alike."""
    num_envs: int = 4
    """Environments side by side."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


def conform(arguments: list[str]) -> int:
    from benchback import envs

    name, flags = parse_named(ConformFlags, arguments, "conform", "ENV", "an environment, e.g. python:my_module.make")
    for field, least in (("limit", 0), ("starts", 1), ("num_envs", 2)):
        given = getattr(flags, field)
        if given is not None and given < least:
            raise InputError(f"{field}={given} must be at least {least}")
    limit_threads(1)
    # `my_module:MyEnv-v0` is how gymnasium names it.
    id = f"gymnasium/{name}" if ":" in name.partition("/")[0] and not name.startswith("python:") else name
    envs.check(id)
    envs.check_installed(id)
    tell_notes(id)
    return print_findings(id, flags)


def print_findings(id: str, flags: ConformFlags) -> int:
    """Print a line for each law as it is checked; 1 if one is broken, else 0."""
    from benchback.envs.conformance import LAWS, Subject, examine

    subject = Subject(id, flags.limit, starts=flags.starts or "random", num_envs=flags.num_envs)
    found = []
    for finding in examine(subject):
        found.append(finding)
        if not flags.json:
            law = f"{LAWS[finding.law].__doc__} " if finding.outcome == "fail" else ""
            print(f"{finding.outcome:<8} {finding.law:<15} {law}{finding.reason}", flush=True)
    broken = [finding.law for finding in found if finding.outcome == "fail"]
    if flags.json:
        print(json.dumps({"env": id, "ok": not broken, "laws": [finding._asdict() for finding in found]}, indent=2))
    else:
        kept = sum(finding.outcome == "pass" for finding in found)
        print(
            f"{id}: {kept} laws kept" + (f", {len(broken)} broken: {', '.join(broken)}" if broken else ", none broken")
        )
    return 1 if broken else 0
