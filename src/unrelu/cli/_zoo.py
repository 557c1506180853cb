"""``unrelu audit --targets FILE``: a list of models, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from unrelu._files import replace_file
from unrelu.cli._attack import Attack, parse_domain
from unrelu.cli._common import console, planted_network, print_json, say, show_progress
from unrelu.cli._config import named_targets
from unrelu.cli._images import read_images
from unrelu.cli._target import as_described, connect_options, given_rate
from unrelu.errors import InvalidInput
from unrelu.report.config import AuditConfig
from unrelu.report.zoo import Job, Zoo, audit_jobs, render_zoo

__all__ = ["audit_list"]


def audit_list(
    listed: Path, out: Path, scheduler: str | None, *, as_json: bool, quiet: bool
) -> Zoo:
    """Audit every model of a file, write the page that ranks them, and tell the outcome."""
    if not listed.is_file():
        raise InvalidInput(f"--targets {listed}: there is no such file")
    folder = out.absolute().with_suffix("")
    jobs = _jobs(listed, folder)
    folder.mkdir(exist_ok=True)
    before = {job.name for job in jobs if job.kept() is not None}
    facts: dict[str, dict[str, Any]] = {}
    errors: dict[str, str] = {}
    with show_progress(quiet=quiet) as progress:
        if progress is not None:
            progress.update("audited", 0, len(jobs))
        for job, found in audit_jobs(jobs, scheduler):
            if "error" in found:
                errors[job.name] = found["error"]
            else:
                facts[job.name] = found
            if not quiet:
                _tell(job.name, found, before=job.name in before)
            if progress is not None:
                progress.update("audited", len(facts) + len(errors), len(jobs))
    zoo = Zoo(tuple(jobs), facts, errors)
    replace_file(out, render_zoo(zoo, out).encode())
    if as_json:
        print_json(zoo.to_json())
    else:
        console.print(zoo.sentence(), markup=False)
        console.print(f"report: {out}; each model's own: {folder.name}/NAME.html", markup=False)
    return zoo


def _tell(name: str, found: dict[str, Any], *, before: bool) -> None:
    """Tell a person of one model, as soon as it is done."""
    if "error" in found:
        say(f"{name}:", f"not audited: {found['error']}", "red")
        return
    level, reason = found["risk"]["level"], found["risk"]["reason"]
    colour = {"high": "red", "low": "green"}.get(level, "yellow")
    if found["recovered"]:
        reason += f", {found['attack_queries']:,} queries"
    console.print(
        Text.assemble(
            f"{name}: ",
            (f"{level} risk", colour),
            f", {reason}{' (audited before)' if before else ''}.",
        )
    )


def _jobs(listed: Path, folder: Path) -> list[Job]:
    """Return the models of a file; what the command line says goes first, for all of them."""
    jobs = []
    for name, said in named_targets(listed.absolute()).items():
        with as_described(name, said) as given:
            attack = Attack(
                parse_domain(given["domain"]), given["depth"], given["epsilon"],
                given["relative"], given["answers"],
            )  # fmt: skip
            attack.check()
            connecting = connect_options()
            target = given["target"]
            shape, shown = read_images(given["image"], given["examples"])
            job = Job(
                name=name,
                target=planted_network(target) if target.startswith("planted:") else target,
                said=target,
                folder=folder,
                ledger=given["ledger"] and Path(given["ledger"]).absolute(),
                store_points=connecting.pop("store_points"),
                connecting=connecting
                | {"input_dim": given["input_dim"], "budget": given["budget"]},
                auditing={
                    "rng": given["seed"],
                    "rate": given_rate(),
                    "image_shape": shape,
                    "examples": shown,
                    "config": AuditConfig(seconds=given["patience"]),
                    "command": f"unrelu audit {name} --seed {given['seed']}",
                },
                attack=attack,
            )
        jobs.append(job)
    if not jobs:
        raise InvalidInput(f"{listed} describes no targets: [targets.NAME] with target = ...")
    return jobs
