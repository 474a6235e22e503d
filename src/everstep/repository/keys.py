"""Where everything lies in a store: every key that everstep reads or writes is made here.

Keys of other shapes under the same prefixes are not ours (a file manager's droppings), and are passed over.
"""

from __future__ import annotations

import re

from everstep.format.digests import digest_of
from everstep.format.ids import SaveId, parse_save
from everstep.format.limits import MAX_RANKS

__all__ = [
    "CATALOGUE",
    "ORPHANS",
    "READERS",
    "STORE_KEY",
    "TAGS",
    "attempt_commits_prefix",
    "attempt_key",
    "attempts_prefix",
    "commit_key",
    "commits_prefix",
    "copied_key",
    "exchange_prefix",
    "grave_of",
    "heir_key",
    "heirs_prefix",
    "index_key",
    "manifest_key",
    "orphan_key",
    "pack_key",
    "pack_prefix",
    "plan_key",
    "plans_prefix",
    "reader_key",
    "request_key",
    "requests_prefix",
    "run_key",
    "save_of_commit",
    "save_of_pack",
    "save_of_plan",
    "save_prefix",
    "saves_prefix",
    "sweep_key",
    "sweeps_prefix",
    "tag_key",
    "tomb_key",
    "tombs_prefix",
    "undeleted_key",
    "verified_key",
    "verified_prefix",
]

STORE_KEY = "everstep.json"
CATALOGUE = "catalogue/"
TAGS = "tags/"
READERS = "readers/"
ORPHANS = "orphans/"

_LAST_ATTEMPT = 10**8 - 1
_LAST_STEP = 10**16 - 1
_COMMIT = re.compile(r"\d{24}\.(s\d{16}-a\d{8}-[0-9a-f]{32})\.json")
_PLAN = re.compile(r"(s\d{16}-a\d{8}-[0-9a-f]{32})\.json")
_TOMB = re.compile(r"(s\d{16}-a\d{8}-[0-9a-f]{32})(?:\.(\d{1,6})(\.undeleted)?)?")
_PACK = re.compile(r"packs/[0-9a-f]{2}/(s\d{16}-a\d{8}-[0-9a-f]{32})/\d+-\d+\.safetensors")


def run_key(run: str) -> str:
    """The run's record. In lower case, so that of two names that differ only by case one can exist."""
    return f"{CATALOGUE}{run.lower()}.json"


def tag_key(tag: str) -> str:
    """The tag's record, in lower case for the same reason."""
    return f"{TAGS}{tag.lower()}"


def reader_key(reader: str) -> str:
    """The pin of a long restore."""
    return f"{READERS}{reader}"


def attempts_prefix(run: str) -> str:
    """Under it the run's attempts, oldest first."""
    return f"runs/{run}/attempts/"


def attempt_key(run: str, number: int) -> str:
    """The record of one attempt."""
    return f"{attempts_prefix(run)}{number:08d}.json"


def plans_prefix(run: str) -> str:
    """Under it the plans of the run's saves."""
    return f"runs/{run}/plans/"


def plan_key(run: str, save: SaveId) -> str:
    """The first object of a save."""
    return f"{plans_prefix(run)}{save}.json"


def save_of_plan(run: str, key: str) -> SaveId | None:
    """The save whose plan this is; None when the key is not a plan's."""
    match = _PLAN.fullmatch(key.removeprefix(plans_prefix(run)))
    return parse_save(match[1]) if match else None


def saves_prefix(run: str) -> str:
    """Under it the indexes and manifests of all saves of the run."""
    return f"runs/{run}/saves/"


def save_prefix(run: str, save: SaveId) -> str:
    """Under it the save's indexes and manifest."""
    return f"{saves_prefix(run)}{save}/"


def index_key(run: str, save: SaveId, rank: int, digest: str) -> str:
    """One rank's index; rank and digest stand in the name, so that a list shows who is done."""
    return f"{save_prefix(run, save)}rank-{rank:0{len(str(MAX_RANKS))}d}.{digest}.json"


def manifest_key(run: str, save: SaveId, digest: str) -> str:
    """The save's manifest."""
    return f"{save_prefix(run, save)}manifest.{digest}.json"


def pack_prefix(save: SaveId, rank: int, number: int) -> str:
    """The folder of a pack; its two first digits spread a save's packs over 256 prefixes."""
    return f"packs/{digest_of(f'{save}/{rank}/{number}'.encode())[:2]}/{save}/"


def pack_key(save: SaveId, rank: int, number: int) -> str:
    """The ``number``-th pack that a rank writes in a save."""
    return f"{pack_prefix(save, rank, number)}{rank}-{number}.safetensors"


def save_of_pack(key: str) -> SaveId | None:
    """The save that wrote this pack; None when the key is not a pack's."""
    match = _PACK.fullmatch(key)
    return parse_save(match[1]) if match else None


def commits_prefix(run: str) -> str:
    """Under it the run's commit records, the newest first: highest attempt, then highest step."""
    return f"runs/{run}/commits/"


def attempt_commits_prefix(run: str, attempt: int) -> str:
    """Under it the commit records of one attempt's saves, the highest step first."""
    return f"{commits_prefix(run)}{_LAST_ATTEMPT - attempt:08d}"


def commit_key(run: str, save: SaveId) -> str:
    """The object that decides a save. Attempt and step are inverted, so that a list begins with the newest."""
    return f"{attempt_commits_prefix(run, save.attempt)}{_LAST_STEP - save.step:016d}.{save}.json"


def save_of_commit(run: str, key: str) -> SaveId | None:
    """The save that this record decides; None when the key is not a commit record's."""
    match = _COMMIT.fullmatch(key.removeprefix(commits_prefix(run)))
    save = parse_save(match[1]) if match else None
    return save if save is not None and commit_key(run, save) == key else None


def tombs_prefix(run: str) -> str:
    """Under it the names of the run's pruned saves."""
    return f"runs/{run}/tombs/"


def tomb_key(run: str, save: SaveId, number: int = 0) -> str:
    """That the save was pruned; after it was undeleted ``number`` times."""
    return f"{tombs_prefix(run)}{_numbered(save, number)}"


def undeleted_key(run: str, save: SaveId, number: int) -> str:
    """That the tomb of this number holds no longer."""
    return f"{tombs_prefix(run)}{save}.{number}.undeleted"


def grave_of(run: str, key: str) -> tuple[SaveId, int, bool] | None:
    """The save, the number of its tomb, and whether it says ``undeleted``; None when the key is none of a tomb."""
    match = _TOMB.fullmatch(key.removeprefix(tombs_prefix(run)))
    return (parse_save(match[1]), int(match[2] or 0), bool(match[3])) if match else None


def sweep_key(run: str, save: SaveId, number: int = 0) -> str:
    """What becomes of the save that has the tomb of this number."""
    return f"{sweeps_prefix(run)}{_numbered(save, number)}"


def _numbered(save: SaveId, number: int) -> str:
    return f"{save}.{number}" if number else str(save)


def sweeps_prefix(run: str) -> str:
    """Under it what became of the run's pruned saves."""
    return f"runs/{run}/sweeps/"


def orphan_key(save: SaveId) -> str:
    """That packs of this save, which no run knows, are being swept: no copy may rely on them."""
    return f"{ORPHANS}{save}"


def verified_prefix(run: str) -> str:
    """Under it the names of the run's saves whose bytes were all read and found whole."""
    return f"runs/{run}/verified/"


def verified_key(run: str, save: SaveId) -> str:
    """That all bytes of the save were read and found whole."""
    return f"{verified_prefix(run)}{save}"


def heirs_prefix(run: str) -> str:
    """Under it the names of the runs that may refer to packs of this one."""
    return f"runs/{run}/heirs/"


def heir_key(run: str, heir: str) -> str:
    """That the run ``heir`` may refer to packs of ``run``."""
    return f"{heirs_prefix(run)}{heir}"


def copied_key(run: str, attempt: int) -> str:
    """That saves of the run up to this attempt are copies, which keep the names that they have elsewhere."""
    return f"{heirs_prefix(run)}_copied-{attempt:08d}"


def exchange_prefix(run: str) -> str:
    """Under it the words between the ranks of each launch."""
    return f"runs/{run}/exchange/"


def requests_prefix(run: str) -> str:
    """Under it what people ask of the running training, and the answers."""
    return f"runs/{run}/requests/"


def request_key(run: str, request: str, *, answer: bool = False) -> str:
    """A request for a save, or the training's answer to it."""
    return f"{requests_prefix(run)}{request}{'.answer' if answer else ''}.json"
