"""Dealing a node's reads: each chunk that several ranks want is fetched by one of them, evenly, without a standstill."""

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.format.box import Box
from everstep.format.index import Chunk
from everstep.plan.handing import Wish, arrange, hand_out, wish_of
from everstep.plan.joining import joined
from everstep.plan.requests import ChunkRead


def reads_of(chunks):
    """The reads of chunks given as (key, offset, length)."""
    return joined(
        (
            key,
            ChunkRead(
                path=f"w{offset}",
                rank=0,
                shard_box=Box((0,), (length,)),
                start=0,
                chunk=Chunk("0" * 64, 0, offset, length),
                wanted=(n,),
            ),
        )
        for n, (key, offset, length) in enumerate(chunks)
    )


@st.composite
def nodes(draw):
    """Chunks in some packs, and for each of some ranks which of them it wants."""
    places = []
    for key in draw(st.sampled_from([["a"], ["a", "b"], ["b", "a", "c"]])):
        at = 64
        for length in draw(st.lists(st.integers(1, 9), max_size=12)):
            at += draw(st.sampled_from([0, 0, 0, 3]))
            places.append((key, at, length * 2**18))
            at += length * 2**18
    ranks = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5, unique=True))
    chosen = st.sets(st.sampled_from(places)) if places else st.just(set())
    everything = st.just(set(places))
    return {rank: sorted(draw(chosen | everything)) for rank in ranks}


@settings(max_examples=300, deadline=None)
@given(nodes(), st.sampled_from([2**20, 3 * 2**20, 2**40]))
def test_each_shared_chunk_has_one_fetcher(node, round_bytes):
    """What two or more ranks want is fetched by one that wants it, for the others; what one wants is its own."""
    units = hand_out(
        {rank: wish_of(reads_of(places)) for rank, places in node.items()}, round_bytes=round_bytes
    )
    inside = {}
    for unit in units:
        assert unit.fetcher not in unit.takers
        assert unit.takers
        for rank in (unit.fetcher, *unit.takers):
            for place in node[rank]:
                if place[0] == unit.key and unit.offset <= place[1] < unit.offset + unit.length:
                    inside.setdefault(place, set()).add((unit.offset, rank))
    for place in {place for places in node.values() for place in places}:
        wanting = {rank for rank, places in node.items() if place in places}
        if len(wanting) > 1 and place[2] <= round_bytes:
            assert {rank for _, rank in inside[place]} == wanting
            assert len({offset for offset, _ in inside[place]}) == 1
        else:
            assert place not in inside
    by_round = {}
    for unit in units:
        by_round[unit.round, unit.fetcher] = by_round.get((unit.round, unit.fetcher), 0) + unit.length
    assert all(total <= round_bytes for total in by_round.values())


@settings(max_examples=300, deadline=None)
@given(nodes(), st.sampled_from([2**20, 3 * 2**20, 2**40]))
def test_nobody_waits_for_ever(node, round_bytes):
    """Each rank doing its reads one after another, waiting where it takes: all come to their end, with every chunk."""
    mine = {rank: reads_of(places) for rank, places in node.items()}
    units = hand_out({rank: wish_of(reads) for rank, reads in mine.items()}, round_bytes=round_bytes)
    queues = {rank: list(arrange(reads, units, rank)) for rank, reads in mine.items()}
    for rank, places in node.items():
        got = sorted((r.key, c.chunk.offset, c.chunk.length) for r in queues[rank] for c in r.chunks)
        assert got == places
    taking = {(unit.key, unit.offset, rank) for unit in units for rank in unit.takers}
    published = set()
    most = 0
    while any(queues.values()):
        before = sum(map(len, queues.values()))
        for rank, queue in queues.items():
            while queue and (
                (queue[0].key, queue[0].offset, rank) not in taking
                or (queue[0].key, queue[0].offset) in published
            ):
                read = queue.pop(0)
                published.add((read.key, read.offset))
        assert sum(map(len, queues.values())) < before, "a standstill"
        most += 1
    assert most <= len(units) + 1


def test_equal_wishes_are_dealt_evenly():
    """Four ranks that want the same 64 MiB fetch 16 MiB each."""
    wish = wish_of(reads_of([("a", 64 + n * 2**20, 2**20) for n in range(64)]))
    units = hand_out(dict.fromkeys(range(4), wish), round_bytes=2**30)
    loads = [sum(unit.length for unit in units if unit.fetcher == rank) for rank in range(4)]
    assert loads == [16 * 2**20] * 4
    assert len(units) <= 4 * 8


def test_who_has_much_of_its_own_fetches_less():
    """A rank that alone wants as much as all share fetches nothing for others."""
    shared = [("a", 64 + n * 2**20, 2**20) for n in range(8)]
    own = [("b", 64 + n * 2**20, 2**20) for n in range(8)]
    wishes = {0: wish_of(reads_of(shared + own)), 1: wish_of(reads_of(shared))}
    assert {unit.fetcher for unit in hand_out(wishes, round_bytes=2**30)} == {1}


def test_nothing_in_common():
    """Ranks that want nothing in common keep their reads as they are."""
    reads = reads_of([("a", 64, 100)])
    units = hand_out({0: wish_of(reads), 1: Wish(keys=(), ranges=())}, round_bytes=2**30)
    assert units == ()
    assert arrange(reads, units, 0) == reads
