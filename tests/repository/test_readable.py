"""Which packs are asked for before a restore, and what is said of those in an archive tier."""

from dataclasses import replace

import pytest

from everstep.errors import Archived
from everstep.prices import BILLED_GB, prices
from everstep.repository.bringing_back import KEPT_DAYS, Lying, commands, told, ways_words
from everstep.repository.readable import archived_among, check_readable, refuse
from everstep.repository.reading import read_manifest
from everstep.store.memory import MemoryStore
from tests.repository.worlds import put, started

PLACE = {"cloud": "s3", "container": "b", "prefix": "team", "account": "", "endpoint": ""}


class Cold:
    """A cloud's store of which some keys lie in an archive tier; notes what is asked for."""

    def __init__(self, url="s3://b/team", tier="GLACIER"):
        self.inner = MemoryStore()
        self.url = url
        self.tier = tier
        self.archived = set()
        self.asked = []

    def create(self, key, body):
        self.inner.create(key, body)

    def get(self, key, limit):
        return self.inner.get(key, limit)

    def get_range(self, key, start, into):
        self.asked.append((key, start, len(into)))
        if key in self.archived:
            raise Archived("archived", key=key, tier=self.tier, coming=False, **PLACE)
        self.inner.get_range(key, start, into)

    def list(self, prefix, after=""):
        return self.inner.list(prefix, after)

    def delete(self, key):
        self.inner.delete(key)


def two(url="s3://b/team"):
    """A checkpoint of two packs, one of them of the checkpoint before."""
    store = Cold(url)
    repo, attempt = started(store)
    first = put(repo, attempt, 1, {"a": b"a" * 100})
    second = put(repo, attempt, 2, {"a": b"a" * 100, "b": b"b" * 100}, bases=[first])
    return repo, store, second, read_manifest(repo, second).packs


@pytest.mark.parametrize("url", ["file:///x", "memory://x", "gs://b/team"])
def test_where_nothing_can_be_archived_nothing_is_asked(url):
    """Disks, memory, and GCS, which gives every class at once."""
    repo, store, second, packs = two(url)
    check_readable(repo, second, packs)
    assert store.asked == []


@pytest.mark.parametrize("url", ["s3://b/team", "AZ://c/team"])
def test_one_byte_of_each_pack_once(url):
    """That is the whole cost, however large packs are and however often they are named."""
    repo, store, second, packs = two(url)
    check_readable(repo, second, [*packs, *packs])
    assert sorted(store.asked) == [(key, 0, 1) for key in packs]


def test_a_pack_that_is_gone_is_for_the_reader_to_tell():
    """Who reads it names the leaves."""
    repo, store, second, packs = two()
    store.delete(packs[0])
    check_readable(repo, second, packs)
    assert archived_among(store, packs) == []


def test_a_pack_that_came_back_in_the_meantime_is_no_matter():
    """They are asked for once more before anybody is told to pay for them."""
    repo, store, second, packs = two()
    store.archived = {packs[0]}
    with pytest.raises(Archived):
        refuse(repo, second, packs[:1], of=2)
    store.archived = set()
    refuse(repo, second, packs[:1], of=2)


def lying(checkpoint, count=1, size=BILLED_GB, tier="GLACIER", **fields):
    """Packs of so many saves."""
    saves = [replace(checkpoint.save, step=step) for step in range(1, count + 1)]
    error = Archived("archived", **{**PLACE, "tier": tier, "coming": False, **fields})
    return [Lying(key=f"packs/ab/{save}/0-0.safetensors", size=size, error=error) for save in saves]


def test_what_it_costs_is_the_table_of_prices():
    """The retrieval of every gigabyte and object, and on S3 the copy that stays a week."""
    _, _, second, _ = two()
    error = told(second, lying(second, 10), of=12)
    ways = {way.name: way.cost(10 * BILLED_GB, 10) for way in prices("s3-glacier").archive}
    kept = 10 * prices("s3-standard").gb_month * KEPT_DAYS / (730 / 24)
    assert error.fields["costs"] == {
        f"GLACIER {name}": round(dollars + kept, 4) for name, dollars in ways.items()
    }
    assert error.message == (
        "run@2: 10 of the 12 packs it needs (10.7 GB) lie in an archive tier (GLACIER); nothing was changed"
    )
    azure = told(second, lying(second, 10, tier="Archive", cloud="azure", account="acc"), of=10)
    assert azure.fields["costs"]["Archive high"] == round(10 * 0.10 + 10 / 1000 * 5, 4)


def test_ways_are_lines_of_plain_numbers():
    """Minutes, hours and days; dollars to the cent."""
    ways = prices("s3-glacier").archive
    lines = ways_words("GLACIER", ways, packs=1000, size=BILLED_GB, kept=0.0, as_of="2026-08-18")
    assert lines[0] == "  GLACIER, standard: within 5 hours, about $0.06 (2026-08-18)"
    assert "within 6 minutes, about $10.03" in lines[2]


def test_commands_name_at_most_twenty_saves_each():
    """A shell's line has an end; each save is in exactly one of them."""
    _, _, second, _ = two()
    packs = lying(second, 45)
    lines = list(commands(packs))
    assert len(lines) == 3
    assert sum(line.count("contains(") for line in lines) == 45
    assert "--prefix team/packs/" in lines[0]
    assert "'Days=7,GlacierJobParameters={Tier=Standard}'" in lines[0]
    (tiering,) = commands(lying(second, tier="INTELLIGENT_TIERING"))
    assert "Days=" not in tiering, "S3 moves the object itself there, and takes no days"


def test_packs_on_their_way_back_are_waited_for():
    """No command, no price: it was asked for already."""
    _, _, second, _ = two()
    error = told(second, lying(second, 2, tier="Archive", cloud="azure", coming=True), of=2)
    assert "2 of them are on their way back" in error.message
    assert error.hint.startswith("call again when they are back")
    assert error.fields["commands"] == ()
