"""``everstep plan``: how often to save and what to keep, before money is spent."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.options import json_option, store_option
from everstep.cli.plan_shown import shown, told
from everstep.cli.pricing import prices_for
from everstep.errors import UsageError

if TYPE_CHECKING:
    from everstep.cadence.outages import Exponential, Replay, Weibull
    from everstep.planner.assumed import Assumptions, Measured, MeasuredRun
    from everstep.planner.question import Question
    from everstep.prices import Prices
    from everstep.retention.policy import Policy

__all__ = ["command"]

_COPIED_BYTES_PER_S = 5e9
"""A stall is a copy of the state in memory; a small machine makes it at 9 GB/s (docs/performance.md)."""
_PACED_BYTES_PER_S = 0.5e9
"""What an upload is not held below (docs/decisions/0005-pace.md)."""
_PACED_SLOWDOWN = 0.08
"""Steps beside such an upload took 6 to 9 % longer (docs/performance.md)."""
_MTBF_S, _NOTICE_CHANCE = 4 * 3600.0, 0.8
"""What every="auto" goes by as well, while nothing was seen."""
_WEIBULL_SHAPE = 0.7
_PROBED_BYTES = 32 * 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """The options that say figures, as they were written."""

    state: str | None
    stall: str | None
    bandwidth: str | None
    slowdown: str | None
    changed: str | None
    mtbf: str | None
    notice: str | None
    notice_chance: str | None
    restart: str | None
    machines: int | None
    machine_price: float | None
    overhead: str | None
    step: str | None
    horizon: str | None


@click.command("plan")
@click.option("--state", metavar="SIZE", help="The training state: 15GB. Needed without --run.")
@click.option("--stall", metavar="TIME", help="How long a save stops training. Default: a copy at 5 GB/s.")
@click.option(
    "--bandwidth", metavar="RATE", help="Upload of one machine: 1GB/s. Default: probed, or 500MB/s."
)
@click.option("--slowdown", metavar="SHARE", help="How much longer steps take beside an upload. Default: 8%.")
@click.option("--changed", metavar="SHARE", help="The share of bytes that is new in each save. Default: all.")
@click.option("--mtbf", metavar="TIME", help="Mean time between failures of one machine. Default: 4h.")
@click.option("--notice", metavar="TIME", help="How long before its end a machine is told. Default: never.")
@click.option("--notice-chance", metavar="SHARE", help="How often that happens. Default: 80%.")
@click.option("--restart", metavar="TIME", help="From a failure until training goes on. Default: 3m.")
@click.option(
    "--failures",
    type=click.Choice(["exponential", "weibull"]),
    help="Failures without memory, or in bursts. Default: exponential.",
)
@click.option(
    "--trace", metavar="NAME|FILE", help="Machines that came and went: a recorded trace, or a CSV file."
)
@click.option("--machines", type=int, help="The job stops when any of them fails. Default: 1.")
@click.option("--machine-price", type=float, help="Dollars for an hour of one machine.")
@click.option(
    "--prices", metavar="NAME|FILE", help="List prices of the store, such as azure-hot, or a TOML file."
)
@click.option("--price", "changes", metavar="KEY=VALUE", multiple=True, help="Change one: gb_month=0.02.")
@click.option(
    "--keep", "keeps", metavar="POLICY", multiple=True, help='Retention, again and again: "last 3".'
)
@click.option("--every", "intervals", metavar="TIME", multiple=True, help="An interval to compare as well.")
@click.option("--overhead", metavar="SHARE", help="How much of the time saves may take. Default: 3%.")
@click.option(
    "--step", metavar="TIME", help='What a step takes, for retention such as "every 1000". Default: 1s.'
)
@click.option("--horizon", metavar="TIME", help="Retention is told after so long. Default: 30d.")
@click.option("--run", metavar="RUN", help="Measure a run in the store: sizes, stall, failures, retention.")
@store_option
@click.option("--chart", metavar="FILE", help="Draw it too: a file that ends in .svg or .png.")
@json_option
def command(
    *,
    failures: str | None,
    trace: str | None,
    prices: str | None,
    changes: tuple[str, ...],
    keeps: tuple[str, ...],
    intervals: tuple[str, ...],
    run: str | None,
    store: str | None,
    chart: str | None,
    as_json: bool,
    **words: str | float | None,
) -> None:
    """Plan how often to save and what to keep: goodput, lost work, cost.

    Compares intervals and retentions and recommends one pair. What is not given is measured (--run, --store)
    or has a default that is shown as one.
    """
    from everstep.planner.answer import answer
    from everstep.planner.assumed import Assumptions

    if chart is not None:
        from everstep.planner.plot import check_chart

        check_chart(Path(chart))
    figures = _Words(**words)  # type: ignore[arg-type] # click gives each the type of its option
    assumptions = Assumptions()
    if run is not None:
        store = places.store_url(store)
    measured, standing = _of_run(run, store)
    known = figures.bandwidth is not None or measured.bandwidth is not None
    probed = _probed(store) if store and not known else None
    question = _question(
        figures,
        assumptions,
        measured,
        probed,
        prices=_prices(prices, changes, store),
        keeps=_policies(keeps, standing),
        intervals=intervals,
        losses=_losses(failures, trace, figures),
    )
    found = answer(question)
    if chart is not None:
        from everstep.planner.plot import draw

        draw(found, Path(chart))
    if as_json:
        output.document(told(question, assumptions.found, found))
    else:
        shown(question, assumptions.found, found)


def _question(
    words: _Words,
    assumptions: Assumptions,
    measured: MeasuredRun,
    probed: Measured | None,
    *,
    prices: Prices,
    keeps: tuple[Policy, ...],
    intervals: Sequence[str],
    losses: tuple[str, Replay | None],
) -> Question:
    from everstep.planner.assumed import Measured
    from everstep.planner.question import Question

    machines = int(assumptions.number("machines", words.machines, 1, least=1, most=100_000))
    state = assumptions.size("state", words.state, measured.state)
    stall = assumptions.seconds(
        "stall", words.stall, measured.stall, state / machines / _COPIED_BYTES_PER_S, most=86400.0
    )
    of_run = measured.bandwidth
    each = None if of_run is None else Measured(value=of_run.value / machines, where=of_run.where)
    bandwidth = assumptions.rate("bandwidth", words.bandwidth, each or probed, _PACED_BYTES_PER_S)
    slowdown = assumptions.share("slowdown", words.slowdown, measured.slowdown, _PACED_SLOWDOWN, most=10.0)
    changed = assumptions.share("changed", words.changed, measured.changed, 1.0)
    notice = assumptions.seconds("notice", words.notice, None, 0.0, most=86400.0)
    if words.notice_chance is not None and not notice:
        raise UsageError(
            "--notice-chance without --notice says nothing",
            hint="say how long before its end a machine is told: --notice 120s",
        )
    chance = 0.0
    if notice:
        chance = assumptions.share(
            "notice-chance", words.notice_chance, measured.notice_chance, _NOTICE_CHANCE
        )
    return Question(
        state_bytes=state,
        stall_s=stall,
        bandwidth=bandwidth,
        failures=_failures(words, assumptions, measured, machines, losses),
        restart_s=assumptions.seconds("restart", words.restart, None, 180.0, most=30 * 86400.0),
        prices=prices,
        keeps=keeps,
        changed=changed,
        slowdown=slowdown,
        machines=machines,
        machine_price=None
        if words.machine_price is None
        else assumptions.number("machine-price", words.machine_price, 0.0, most=1e5),
        notice_s=notice,
        notice_chance=chance,
        intervals=tuple(assumptions.seconds("every", one, None, None, least=1.0) for one in intervals),
        overhead=assumptions.share("overhead", words.overhead, None, 0.03, least=0.0001, most=0.5),
        step_s=assumptions.seconds("step", words.step, None, 1.0, least=1e-4, most=30 * 86400.0),
        horizon_s=assumptions.seconds("horizon", words.horizon, None, 30 * 86400.0, least=60.0),
    )


def _losses(failures: str | None, trace: str | None, words: _Words) -> tuple[str, Replay | None]:
    """Which model, or the trace that is played instead of one."""
    from everstep.cadence.outages import Replay
    from everstep.planner.recorded import trace_of

    if trace is None:
        return failures or "exponential", None
    if words.mtbf is not None or failures is not None:
        raise UsageError(
            f"--trace tells when machines are lost, and --{'mtbf' if words.mtbf else 'failures'} does too",
            hint="give one of them",
        )
    return "trace", Replay(trace=trace_of(trace))


def _failures(
    words: _Words,
    assumptions: Assumptions,
    measured: MeasuredRun,
    machines: int,
    losses: tuple[str, Replay | None],
) -> Exponential | Weibull | Replay:
    from everstep.cadence.outages import Exponential, Replay, Weibull
    from everstep.planner.assumed import Measured

    model, replay = losses
    if replay is not None:
        trace = replay.trace
        seen = Measured(value=trace.mtbf_s, where=f"trace {trace.name}, {trace.losses} machines lost")
        assumptions.seconds("mtbf", None, seen, None)
        return Replay(trace=trace, machines=machines, blur_s=trace.resolution_s)
    of_run = measured.mtbf
    each = None if of_run is None else Measured(value=of_run.value * machines, where=of_run.where)
    mtbf = assumptions.seconds("mtbf", words.mtbf, each, _MTBF_S, least=1.0)
    if model == "weibull":
        return Weibull(mtbf_s=mtbf, machines=machines, shape=_WEIBULL_SHAPE)
    return Exponential(mtbf_s=mtbf, machines=machines)


def _policies(keeps: Sequence[str], standing: Policy | None) -> tuple[Policy, ...]:
    """The retentions asked for, else the run's own, else the last three."""
    from everstep.retention.policy import parse_keep

    if keeps:
        return tuple({policy.text(): policy for policy in map(parse_keep, keeps)}.values())
    return (standing or parse_keep("last 3"),)


def _prices(named: str | None, changes: Sequence[str], store: str | None) -> Prices:
    from everstep.prices import overridden, prices

    return overridden(prices_for(named, store or "") or prices("disk"), changes)


def _of_run(run: str | None, store: str | None) -> tuple[MeasuredRun, Policy | None]:
    from everstep.planner.assumed import MeasuredRun

    if run is None:
        return MeasuredRun(), None
    from everstep.planner.measured import measure_run
    from everstep.retention.standing import standing_policy

    repository = places.opened(store)
    return measure_run(repository, run, expected_mtbf_s=_MTBF_S), standing_policy(repository, run)


def _probed(store: str) -> Measured:
    from everstep.planner.measured import measure_bandwidth

    output.say(f"measuring the bandwidth to {store} with {_PROBED_BYTES // 10**6} MB")
    return measure_bandwidth(
        places.store_at(store),
        name=os.urandom(8).hex(),
        size=_PROBED_BYTES,
        clock=time.time,
        monotonic=time.monotonic,
        random_bytes=os.urandom,
    )
