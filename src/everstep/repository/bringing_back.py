"""What it takes to read archived packs again: hours, dollars, and the commands of the clouds' own tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from everstep.errors import Archived
from everstep.prices import BILLED_GB, Rehydration, prices
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.keys import save_of_pack

__all__ = ["Lying", "commands", "told", "ways_words"]

KEPT_DAYS = 7
"""How long S3 keeps the readable copy that the commands ask for."""

_PRICES = {"GLACIER": "s3-glacier", "DEEP_ARCHIVE": "s3-deep-archive", "Archive": "azure-archive"}
_SAVES_A_COMMAND = 20
_MONTH_DAYS = 730 / 24
_HOUR = 1.0
_CENT = 0.01
_DAY_HOURS = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lying:
    """A pack in an archive tier: its size in bytes, and what the store said to who asked for it."""

    key: str
    size: int
    error: Archived


def told(checkpoint: Checkpoint, lying: Sequence[Lying], *, of: int) -> Archived:
    """The error for a checkpoint of whose ``of`` packs these cannot be read: how much, how long, for what, and how."""
    waiting = [pack for pack in lying if not pack.error.fields.get("coming")]
    coming = len(lying) - len(waiting)
    size = sum(pack.size for pack in lying)
    tiers = Counter(_tier(pack) for pack in lying)
    named = " and ".join(sorted(filter(None, tiers)))
    asked = tuple(commands(waiting))
    dollars, words = _bill(waiting)
    return Archived(
        f"{checkpoint}: {len(lying)} of the {of} packs it needs ({_size(size)}) lie in an archive tier"
        f"{f' ({named})' if named else ''}"
        f"{f', {coming} of them are on their way back' if coming else ''}; nothing was changed",
        hint="\n".join([_first(asked), *words, *asked]),
        run=checkpoint.run,
        step=checkpoint.step,
        save=str(checkpoint.save),
        packs=len(lying),
        packs_needed=of,
        bytes=size,
        coming=coming,
        tier=named,
        key=lying[0].key,
        costs=dollars,
        commands=asked,
    )


def _first(asked: Sequence[str]) -> str:
    if not asked:
        return "call again when they are back, up to 15 hours after they were asked for; the same call then goes on"
    return "bring them back, then call again: the same call goes on. List prices, your region's may differ:"


def _bill(waiting: Sequence[Lying]) -> tuple[dict[str, float], list[str]]:
    """Dollars by tier and speed, and the lines that say so."""
    dollars: dict[str, float] = {}
    lines: list[str] = []
    for tier in sorted({_tier(pack) for pack in waiting}):
        packs = [pack for pack in waiting if _tier(pack) == tier]
        size = sum(pack.size for pack in packs)
        if tier not in _PRICES:
            lines.append(f"  {tier or 'this tier'}: see the provider's page for its price and hours")
            continue
        listed = prices(_PRICES[tier])
        kept = _kept(tier, size)
        lines += ways_words(
            tier, listed.archive, packs=len(packs), size=size, kept=kept, as_of=f"{listed.as_of}"
        )
        for way in listed.archive:
            dollars[f"{tier} {way.name}"] = round(way.cost(size, len(packs)) + kept, 4)
    return dollars, lines


def _kept(tier: str, size: int) -> float:
    """Dollars for the readable copy that S3 keeps beside the archived one; Azure moves the object itself."""
    if tier == "Archive":
        return 0.0
    return size / BILLED_GB * prices("s3-standard").gb_month * KEPT_DAYS / _MONTH_DAYS


def ways_words(
    tier: str, ways: Sequence[Rehydration], *, packs: int, size: int, kept: float, as_of: str
) -> list[str]:
    """A line for each way to bring ``packs`` objects of ``size`` bytes back, ``kept`` dollars included."""
    return [
        f"  {tier}, {way.name}: within {_hours(way.hours)}, about {_dollars(way.cost(size, packs) + kept)} ({as_of})"
        for way in ways
    ]


def _dollars(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= _CENT or dollars == 0 else f"${dollars:.2g}"


def _hours(hours: float) -> str:
    if hours < _HOUR:
        return f"{hours * 60:.0f} minutes"
    if hours > _DAY_HOURS:
        return f"{hours / 24:g} days"
    return f"{hours:g} hour{'' if hours == _HOUR else 's'}"


def commands(waiting: Sequence[Lying]) -> Iterator[str]:
    """Lines for a shell that ask for these packs, each for at most 20 saves' packs, by the ordinary speed.

    The clouds' own tools do it: no store's five verbs can. They list ``packs/`` and take what lies in the tier.
    """
    for tier in sorted({_tier(pack) for pack in waiting}):
        packs = [pack for pack in waiting if _tier(pack) == tier]
        saves = sorted({str(save_of_pack(pack.key)) for pack in packs})
        fields = {name: str(value) for name, value in packs[0].error.fields.items()}
        for start in range(0, len(saves), _SAVES_A_COMMAND):
            part = saves[start : start + _SAVES_A_COMMAND]
            if fields.get("cloud") == "azure":
                yield _az(fields, part)
            elif fields.get("cloud") == "s3":
                yield _aws(fields, part, tier)


def _az(place: dict[str, str], saves: Sequence[str]) -> str:
    among = " || ".join(f"contains(name, '{save}')" for save in saves)
    query = f"[?properties.blobTier=='Archive' && properties.rehydrationStatus==null && ({among})].[name]"
    where = f"--account-name {quote(place['account'])} --container-name {quote(place['container'])}"
    if place.get("endpoint"):
        where = f"--blob-endpoint {quote(place['endpoint'])} {where}"
    return (
        f"az storage blob list {where} --auth-mode login --prefix {quote(_packs(place))} --num-results '*'"
        f' --query "{query}" --output tsv | xargs -P 8 -I PACK az storage blob set-tier {where} --auth-mode login'
        " --name PACK --tier Hot --rehydrate-priority Standard"
    )


def _aws(place: dict[str, str], saves: Sequence[str], tier: str) -> str:
    among = " || ".join(f"contains(Key, '{save}')" for save in saves)
    query = f"Contents[?StorageClass=='{tier}' && ({among})].[Key]"
    tool = f"aws --endpoint-url {quote(place['endpoint'])}" if place.get("endpoint") else "aws"
    bucket = f"--bucket {quote(place['container'])}"
    days = "" if tier == "INTELLIGENT_TIERING" else f"Days={KEPT_DAYS},"
    return (
        f"{tool} s3api list-objects-v2 {bucket} --prefix {quote(_packs(place))}"
        f' --query "{query}" --output text | xargs -P 8 -I PACK {tool} s3api restore-object {bucket} --key PACK'
        f" --restore-request '{days}GlacierJobParameters={{Tier=Standard}}'"
    )


def _packs(place: dict[str, str]) -> str:
    return f"{place['prefix']}/packs/" if place.get("prefix") else "packs/"


def _tier(pack: Lying) -> str:
    return str(pack.error.fields.get("tier", ""))


def _size(count: int) -> str:
    power = next((power for power in range(6) if count < 999.5 * 1000**power), 6)
    return f"{count / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB')[power]}"
