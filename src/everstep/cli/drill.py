"""``everstep drill``: stop a training again and again, and prove that nothing was lost."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everstep.cli import output
from everstep.cli.describe import checkpoint_fields
from everstep.cli.options import json_option

if TYPE_CHECKING:
    from everstep.spot.proof import Report, Verdict

__all__ = ["command"]

_SHOWN = 10


@click.command("drill", context_settings={"ignore_unknown_options": True})
@click.argument("script", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--store", metavar="URL", help="Where the drill's own stores are made. Default: a temporary folder."
)
@click.option(
    "--kills", type=click.IntRange(1, 1000), default=4, show_default=True, help="Stops of each kind."
)
@click.option("--seed", type=int, help="Chooses when to stop; printed, so that a drill can be repeated.")
@click.option("--keep", is_flag=True, help="Leave the drill's stores and logs in place.")
@json_option
def command(
    script: tuple[str, ...], store: str | None, kills: int, seed: int | None, *, keep: bool, as_json: bool
) -> None:
    """Prove that a training script survives being stopped.

    Runs COMMAND three times to its end: undisturbed; stopped by SIGTERM; killed with -9, in the middle of
    saves too. After each stop it starts again in a new process and an empty folder. Then the final states
    are compared to the bit. Exits with 0 only if nothing differs.

    The script saves through es.Checkpointer() with neither store nor run given: EVERSTEP_STORE and
    EVERSTEP_RUN name them here.
    """
    import secrets

    from everstep.spot.child import anchored
    from everstep.spot.proof import Drill, drill, forget

    chosen = secrets.randbelow(10**6) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="everstep-drill-"))
    asked = Drill(
        command=tuple(anchored(script)),
        store=f"{store.rstrip('/')}/drill-{secrets.token_hex(4)}" if store else str(folder / "stores"),
        kills=kills,
        seed=chosen,
        log_folder=folder,
    )
    output.say(f"seed {chosen}; what the script prints goes to {folder}")
    try:
        report = drill(asked, told=output.say)
    finally:
        if not keep:
            forget(asked)
    _show(report, chosen, as_json=as_json)
    click.get_current_context().exit(0 if report.equal else 1)


def _show(report: Report, seed: int, *, as_json: bool) -> None:
    if as_json:
        output.document(
            {"seed": seed, "equal": report.equal, "scenarios": [_fields(one) for one in report.verdicts]}
        )
        return
    output.table(
        ["RUN", "ATTEMPTS", "IN SAVES", "STEPS LOST", "TO RESUME", "CHECKPOINTS", "SAVED", "STORED", "END"],
        [_row(one) for one in report.verdicts],
        right=["ATTEMPTS", "IN SAVES", "STEPS LOST", "TO RESUME", "CHECKPOINTS", "SAVED", "STORED"],
    )
    for one in report.verdicts:
        for difference in one.differences[:_SHOWN]:
            output.line(f"{one.outcome.scenario}: {difference.path}: {difference.a} became {difference.b}")
        if one.metrics_differ:
            output.line(f"{one.outcome.scenario}: metrics differ: {', '.join(one.metrics_differ)}")
    leaves, step = report.verdicts[0].leaves, report.verdicts[0].final.step
    output.line(
        f"equal to the bit: {leaves} leaves and all metrics at step {step}, however it was stopped"
        if report.equal
        else "NOT EQUAL: the end depends on when it was stopped. Save what is missing; seed what is random at the start"
    )


def _row(one: Verdict) -> list[str]:
    outcome = one.outcome
    return [
        str(outcome.scenario),
        str(len(outcome.attempts)),
        str(sum(attempt.mid_save for attempt in outcome.attempts)),
        str(outcome.steps_lost),
        "-" if outcome.to_resume_s is None else f"{outcome.to_resume_s:.1f} s",
        str(one.checkpoints),
        output.bytes_text(one.saved_bytes),
        output.bytes_text(one.stored_bytes),
        "equal" if one.equal else "DIFFERS",
    ]


def _fields(one: Verdict) -> dict[str, object]:
    outcome = one.outcome
    return {
        "scenario": outcome.scenario.name.lower(),
        "equal": one.equal,
        "attempts": [
            {
                "resumed": attempt.resumed,
                "reached": attempt.reached,
                "exit_code": attempt.exit_code,
                "to_first_step_s": attempt.to_first_step_s,
                "mid_save": attempt.mid_save,
            }
            for attempt in outcome.attempts
        ],
        "steps_lost": outcome.steps_lost,
        "to_resume_s": outcome.to_resume_s,
        "checkpoints": one.checkpoints,
        "saved_bytes": one.saved_bytes,
        "stored_bytes": one.stored_bytes,
        "leaves": one.leaves,
        "differences": [difference.path for difference in one.differences],
        "metrics_differ": list(one.metrics_differ),
        "final": checkpoint_fields(one.final),
    }
