"""Every sentence of the `Store` Protocol, as a test that every store runs.

A store's own test file subclasses `StoreContract` and gives a ``store`` fixture: an empty place for each test.
"""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from everstep.errors import AlreadyExists, InvalidManifest, InvalidName, ObjectNotFound, ShortRead
from everstep.store.protocol import Listed, Store

__all__ = ["StoreContract", "keys_of"]

CANARY = "c4n4ry-5ecret"
"""Stores under test that take a secret put this into it where they can; no error or URL may show it."""

SIZES = (0, 1, 2, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 4096, (3 << 20) + 13, 9 << 20)

ALLOWED = "abcxyzABCXYZ0189-._~+=@,"


def keys_of(entries: Iterator[Listed]) -> list[str]:
    """The keys of a list, in its order."""
    return [entry.key for entry in entries]


def bytes_of(size: int, seed: int = 0) -> bytes:
    """Random bytes, the same for the same arguments."""
    return random.Random(seed).randbytes(size)


class StoreContract:
    """The promises of a store. Class attributes make it smaller for slow emulators."""

    many = 2_500
    """Keys of the paging test: more than one page of any store."""

    racers = 32
    secrets: tuple[str, ...] = (CANARY,)

    # create

    def test_created_object_is_read_back_whole(self, store: Store):
        """After create returns, get gives the same bytes."""
        store.create("a/b/c.json", b"hello")
        assert store.get("a/b/c.json", 5) == b"hello"

    def test_create_never_overwrites(self, store: Store):
        """A second create of a key raises AlreadyExists, names the key, and leaves the first bytes."""
        store.create("one", b"first")
        for body in (b"second, longer", b"", b"first"):
            with pytest.raises(AlreadyExists) as caught:
                store.create("one", body)
            assert "one" in str(caught.value)
            assert caught.value.fields["key"] == "one"
        assert store.get("one", 100) == b"first"

    def test_one_of_many_racing_creates_wins(self, store: Store):
        """Of creates of one key from many threads at once exactly one succeeds, and its bytes stay."""
        gate = threading.Barrier(self.racers)

        def race(n: int) -> bool:
            gate.wait()
            try:
                store.create("race/one", b"%05d" % n * 1000)
            except AlreadyExists:
                return False
            return True

        with ThreadPoolExecutor(self.racers) as pool:
            won = list(pool.map(race, range(self.racers)))
        assert won.count(True) == 1
        assert store.get("race/one", 5000) == b"%05d" % won.index(True) * 1000

    @pytest.mark.parametrize("size", SIZES)
    def test_bodies_of_any_size_come_back(self, store: Store, size: int):
        """Empty, small, odd and large bodies are stored whole and listed with their size."""
        body = bytes_of(size, seed=size)
        store.create("packs/x", body)
        assert store.get("packs/x", size) == body
        assert [(it.key, it.size) for it in store.list("packs/")] == [("packs/x", size)]

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, "uint8", "float32", "inner", "readonly"])
    def test_bodies_of_any_kind_come_back(self, store: Store, kind: object):
        """bytes, bytearray, and memoryviews of unsigned bytes, read-only, of other items or of a part, are bodies."""
        raw = bytes_of(40_000)
        body = {
            bytes: raw,
            bytearray: bytearray(raw),
            memoryview: memoryview(raw),
            "uint8": memoryview(bytearray(raw)).cast("B"),
            "float32": memoryview(bytearray(raw)).cast("f"),
            "inner": memoryview(b"ab" + raw + b"c")[2:-1],
            "readonly": memoryview(bytearray(raw)).toreadonly(),
        }[kind]
        store.create("k", body)
        assert store.get("k", 40_000) == raw

    def test_stored_bytes_are_a_copy(self, store: Store):
        """Changing the memory after create has returned changes nothing in the store."""
        body = bytearray(b"before" * 1000)
        store.create("k", memoryview(body))
        body[:6] = b"after!"
        assert store.get("k", 6000) == b"before" * 1000

    def test_created_object_is_seen_at_once_by_all_verbs(self, store: Store):
        """Reads and lists that begin after a create returned see it."""
        for n in range(10):
            key = f"seen/{n:02d}"
            store.create(key, b"%d" % n)
            assert store.get(key, 1) == b"%d" % n
            into = bytearray(1)
            store.get_range(key, 0, memoryview(into))
            assert into == b"%d" % n
            assert keys_of(store.list("seen/"))[-1] == key

    def test_created_object_is_seen_by_other_threads(self, store: Store):
        """What one thread created another one reads."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: store.create(f"t/{n}", b"%d" % n), range(16)))
            got = list(pool.map(lambda n: store.get(f"t/{n}", 2), range(16)))
        assert got == [b"%d" % n for n in range(16)]

    # keys

    def test_keys_of_all_allowed_characters(self, store: Store):
        """Every character a key may have, first, in the middle and last, is kept as it is."""
        keys = [f"{c}{c}x{c}/{c}y-{c}" for c in ALLOWED if c != "."] + ["a.b/.c", "x/y.z.json", ".a", "-"]
        for n, key in enumerate(keys):
            store.create(key, b"%d" % n)
        assert keys_of(store.list("")) == sorted(keys)
        for n, key in enumerate(keys):
            assert store.get(key, 10) == b"%d" % n
            assert key in keys_of(store.list(key))

    def test_long_keys(self, store: Store):
        """Parts of 240 characters and keys of several of them are kept."""
        key = "/".join(["p" * 200, "q" * 240, "r" * 100])
        store.create(key, b"1")
        assert store.get(key, 1) == b"1"
        assert keys_of(store.list("p")) == [key]

    @pytest.mark.parametrize(
        "key",
        [
            *(
                "",
                "/",
                "/a",
                "a/",
                "a//b",
                "..",
                "../a",
                "a/../b",
                "a/..",
                "a..b",
                "./a",
                "a/./b",
                "a.",
                "a./b",
            ),
            *(
                "a\0b",
                "a\nb",
                "a b",
                "a\\b",
                "C:a",
                "a?b",
                "a#b",
                "a%2e",
                "a*",
                "a\x7f",
                "caf\u00e9",
                "\U0001f600",
            ),
            *("x" * 241, "/".join(["y" * 100] * 10), ".everstep-tmp/a", "a/.everstep-tmp"),
        ],
    )
    def test_keys_that_cannot_be_are_refused(self, store: Store, key: str):
        """Absolute, empty, dotted, control, non-ASCII and overlong keys raise InvalidName in every verb."""
        into = memoryview(bytearray(1))
        for verb in (
            lambda: store.create(key, b""),
            lambda: store.get(key, 1),
            lambda: store.get_range(key, 0, into),
            lambda: store.delete(key),
        ):
            with pytest.raises(InvalidName):
                verb()
        assert keys_of(store.list("")) == []

    @pytest.mark.parametrize("prefix", ["..", "../", "/", "/etc", "a//", "a/../", "caf\u00e9", "a\0", "./"])
    def test_prefixes_that_begin_no_key_are_refused(self, store: Store, prefix: str):
        """A list of what can begin no key raises InvalidName and lists nothing else."""
        with pytest.raises(InvalidName):
            list(store.list(prefix))

    # get

    def test_get_of_a_missing_key(self, store: Store):
        """Reads of a missing key raise ObjectNotFound with the key, and so do keys above and below."""
        store.create("there/is", b"1")
        for key in ("nothing", "there", "there/i", "there/is2", "there/is/below", "nowhere/at/all"):
            with pytest.raises(ObjectNotFound) as caught:
                store.get(key, 10)
            assert key in str(caught.value)
            assert caught.value.fields["key"] == key
            with pytest.raises(ObjectNotFound) as caught:
                store.get_range(key, 0, memoryview(bytearray(1)))
            assert caught.value.fields["key"] == key

    def test_get_refuses_what_is_larger_than_the_limit(self, store: Store):
        """It gives an object of exactly the limit and raises InvalidManifest, key named, for one more byte."""
        store.create("k", b"12345")
        assert store.get("k", 5) == b"12345"
        assert store.get("k", 1 << 40) == b"12345"
        for limit in (4, 0):
            with pytest.raises(InvalidManifest, match="k") as caught:
                store.get("k", limit)
            assert caught.value.fields["key"] == "k"

    def test_get_of_an_empty_object(self, store: Store):
        """An empty object is no missing object."""
        store.create("empty", b"")
        assert store.get("empty", 0) == b""

    # get_range

    @pytest.mark.parametrize(
        ("start", "length"),
        [(0, 1), (0, 9000), (0, 10_000), (1, 1), (4095, 2), (4096, 4096), (9999, 1), (5000, 5000), (1, 9999)],
    )
    def test_ranges_are_exact(self, store: Store, start: int, length: int):
        """A range anywhere in the object, its edges included, fills the destination with just these bytes."""
        body = bytes_of(10_000)
        store.create("k", body)
        into = bytearray(length)
        store.get_range("k", start, memoryview(into))
        assert into == body[start : start + length]

    def test_large_ranges(self, store: Store):
        """Ranges of megabytes at odd places are exact, and nothing around the destination is touched."""
        size = max(SIZES)
        body = bytes_of(size)
        store.create("k", body)
        for start, length in (
            (0, size),
            (0, size // 2),
            (1, size - 1),
            (4096, size - 4096),
            (size // 3, size // 2),
        ):
            into = bytearray(b"\xaa" * (length + 200))
            store.get_range("k", start, memoryview(into)[100:-100])
            assert into[100:-100] == body[start : start + length]
            assert into[:100] == into[-100:] == b"\xaa" * 100

    @pytest.mark.parametrize(
        ("start", "length"), [(0, 101), (99, 2), (100, 1), (101, 1), (10_000, 5), (50, 1 << 20)]
    )
    def test_ranges_past_the_end_are_short(self, store: Store, start: int, length: int):
        """A range that goes past the end, or begins there, raises ShortRead with the key."""
        store.create("k", b"x" * 100)
        with pytest.raises(ShortRead, match="k") as caught:
            store.get_range("k", start, memoryview(bytearray(length)))
        assert caught.value.fields["key"] == "k"

    @pytest.mark.parametrize("start", [0, 1, 100])
    def test_empty_ranges(self, store: Store, start: int):
        """A range of no bytes, up to the very end, succeeds."""
        store.create("k", b"x" * 100)
        store.get_range("k", start, memoryview(bytearray(0)))

    def test_ranges_of_an_empty_object(self, store: Store):
        """An empty object has the empty range and no other."""
        store.create("k", b"")
        store.get_range("k", 0, memoryview(bytearray(0)))
        with pytest.raises(ShortRead):
            store.get_range("k", 0, memoryview(bytearray(1)))

    def test_ranges_from_many_threads(self, store: Store):
        """Ranges of one object read at once from many threads are each exact."""
        body = bytes_of(256 * 1024)
        store.create("k", body)

        def read(n: int) -> bool:
            into = bytearray(4096)
            store.get_range("k", n * 4096, memoryview(into))
            return into == body[n * 4096 : (n + 1) * 4096]

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(read, range(64)))

    # list

    def test_lists_are_sorted_as_whole_keys(self, store: Store):
        """A list is sorted by the bytes of whole keys, however the parts lie in folders."""
        keys = [
            "a/b",
            "a.b",
            "a-b",
            "a+/x",
            "a/b.c",
            "a/b-/z",
            "a/b~",
            "a/bb/c",
            "a/bb.c",
            "A/b",
            "a0",
            "a,/y",
            "b",
            "~",
        ]
        for key in reversed(keys):
            store.create(key, b"")
        assert keys_of(store.list("")) == sorted(keys)
        assert keys_of(store.list("a/b")) == sorted(key for key in keys if key.startswith("a/b"))

    def test_prefixes_are_plain_text(self, store: Store):
        """A prefix need not end at a slash, and one that is a whole key or a folder lists what begins so."""
        keys = ["run/s1/x", "run/s1/y", "run/s10/x", "run/s2", "running", "rum"]
        for key in keys:
            store.create(key, b"")
        for prefix in [
            "",
            "r",
            "ru",
            "run",
            "run/",
            "run/s",
            "run/s1",
            "run/s1/",
            "run/s1/x",
            "run/s1/xx",
            "run/s2/",
            "z",
        ]:
            assert keys_of(store.list(prefix)) == sorted(key for key in keys if key.startswith(prefix)), (
                prefix
            )

    def test_after_is_exclusive(self, store: Store):
        """A list leaves out ``after`` and all before it, whether that is a key or not, inside the prefix or not."""
        keys = sorted(["a/1", "a/2", "a/2/0", "a/20", "a.b", "b/1", "b/2", "c"])
        keys.remove("a/2")  # a local disk has no key under another
        for key in keys:
            store.create(key, b"")
        for prefix in ("", "a", "a/", "a/2", "b/", "zz"):
            for after in (
                "",
                "a",
                "a.",
                "a.b",
                "a/",
                "a/1",
                "a/15",
                "a/2",
                "a/2/",
                "a/2/0",
                "a/20",
                "b/1",
                "b/3",
                "c",
                "zzz",
            ):
                wanted = [key for key in keys if key.startswith(prefix) and key > after]
                assert keys_of(store.list(prefix, after)) == wanted, (prefix, after)

    def test_listed_sizes_and_times(self, store: Store):
        """An entry has the object's size, and a time near that of its creation by the store's clock."""
        store.create("k/1", b"12345")
        store.create("k/2", b"")
        one, two = store.list("k/")
        assert (one.key, one.size, two.key, two.size) == ("k/1", 5, "k/2", 0)
        assert 1_600_000_000 < one.modified < 5_000_000_000
        assert abs(one.modified - two.modified) < 120

    def test_lists_of_many_keys_have_each_once(self, store: Store):
        """A list longer than a page has every key once, sorted, from the beginning and from the middle."""
        keys = [f"many/{n // 100:03d}/{n:05d}" for n in range(self.many)]
        shuffled = random.Random(5).sample(keys, len(keys))
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: store.create(key, b""), shuffled))
        assert keys_of(store.list("many/")) == keys
        assert keys_of(store.list("", keys[self.many // 2])) == keys[self.many // 2 + 1 :]
        assert keys_of(store.list("many/001/")) == keys[100:200]

    def test_lists_are_lazy_and_may_be_left(self, store: Store):
        """The first entries of a list can be taken and the rest left, and lists do not disturb each other."""
        for n in range(20):
            store.create(f"l/{n:02d}", b"")
        first, second = store.list("l/"), store.list("l/")
        assert next(first).key == "l/00"
        assert next(second).key == "l/00"
        assert next(first).key == "l/01"
        assert keys_of(second) == [f"l/{n:02d}" for n in range(1, 20)]

    def test_list_of_nothing(self, store: Store):
        """An empty store, and a prefix that nothing has, list nothing."""
        assert keys_of(store.list("")) == []
        assert keys_of(store.list("no/such/")) == []

    def test_lists_beside_creates_and_deletes(self, store: Store):
        """A list while others create and delete has every key that stays, once, and is sorted."""
        stay = [f"m/{n:03d}/k" for n in range(0, 40, 2)]
        for key in stay:
            store.create(key, b"")
        stop = threading.Event()

        def disturb() -> None:
            while not stop.is_set():
                for n in range(1, 40, 2):
                    store.create(f"m/{n:03d}/k", b"")
                for n in range(1, 40, 2):
                    store.delete(f"m/{n:03d}/k")

        with ThreadPoolExecutor(1) as pool:
            disturbing = pool.submit(disturb)
            try:
                for _ in range(5):
                    got = keys_of(store.list("m/"))
                    assert got == sorted(set(got))
                    assert [key for key in got if key in stay] == stay
            finally:
                stop.set()
            disturbing.result()

    # delete

    def test_deleted_object_is_gone_at_once(self, store: Store):
        """After delete returns neither reads nor lists find the key, and its neighbours are there."""
        for key in ("d/1", "d/2", "d/2x"):
            store.create(key, b"1")
        store.delete("d/2")
        with pytest.raises(ObjectNotFound):
            store.get("d/2", 1)
        assert keys_of(store.list("d/")) == ["d/1", "d/2x"]

    def test_delete_of_a_missing_key_is_no_error(self, store: Store):
        """Deleting twice, or what never was, or a part of a key, changes nothing."""
        store.create("d/x/y", b"1")
        for key in ("d/z", "nowhere/at/all", "e", "d/x", "d/x/y/below"):
            store.delete(key)
            store.delete(key)
        assert keys_of(store.list("")) == ["d/x/y"]

    def test_deleted_key_is_free_again(self, store: Store):
        """A key can be created after it was deleted, with other bytes, and folders come back too."""
        for body in (b"one", b"two!", b""):
            store.create("f/g/h", body)
            assert store.get("f/g/h", 10) == body
            store.delete("f/g/h")
        assert keys_of(store.list("")) == []

    def test_creates_beside_deletes_in_one_folder(self, store: Store):
        """Folders that empty under a create do not make it fail."""

        def work(worker: int) -> None:
            for n in range(20):
                store.create(f"w/shared/{worker}-{n}", b"x")
                store.delete(f"w/shared/{worker}-{n}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert keys_of(store.list("")) == []

    # errors and names

    def test_no_secret_in_url_or_errors(self, store: Store):
        """Neither the URL nor any error, nor what caused it, shows a credential."""
        store.create("k", b"1")
        shown = [store.url, repr(store)]
        for ask in (
            lambda: store.create("k", b"2"),
            lambda: store.get("k2", 1),
            lambda: store.get("k", 0),
            lambda: store.get_range("k", 5, memoryview(bytearray(5))),
            lambda: store.create("../k", b""),
        ):
            with pytest.raises(Exception) as caught:  # noqa: PT011  # whichever: what it shows is looked at
                ask()
            error: BaseException | None = caught.value
            while error is not None:
                shown += [str(error), repr(error), repr(getattr(error, "fields", ""))]
                error = error.__cause__
        for secret in self.secrets:
            assert not any(secret in text for text in shown)
