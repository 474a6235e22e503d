"""Faults 5, 6, 21 and 27 on a local disk: no space, a failing sync, wrong places, links, things that are no files."""

import errno
import fcntl
import gc
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidName,
    ObjectNotFound,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnsuitableStore,
)
from everstep.store.keys import RESERVED
from everstep.store.local import LocalStore


class Failing:
    """The system calls of ``os``, of which the ``at``-th one named ``verb`` fails, and all after it if ``on``."""

    def __init__(self, verb: str, number: int, at: int = 1, *, on: bool = False) -> None:
        self._verb, self._number, self._at, self._on = verb, number, at, on
        self.count = 0

    def __getattr__(self, name: str):
        def call(*args, **named):
            if name == self._verb:
                self.count += 1
                if self.count == self._at or (self._on and self.count > self._at):
                    raise OSError(self._number, os.strerror(self._number))
            return getattr(os, name)(*args, **named)

        return call


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def leftovers(root: Path) -> list[str]:
    """The unfinished files of a store."""
    return names_in(root / RESERVED)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("verb", ["pwrite", "fsync", "mkdir", "link", "open"])
def test_no_space(tmp_path: Path, number: int, verb: str):
    """A full disk is StoreFull with path and bytes, wherever it is noticed; nothing is visible or left over."""
    LocalStore(tmp_path).create("old/1", b"old")
    store = LocalStore(tmp_path, calls=Failing(verb, number, at=2 if verb in {"fsync", "open"} else 1))
    with pytest.raises(StoreFull) as caught:
        store.create("packs/new", b"x" * 5000)
    assert str(tmp_path / "packs/new") in str(caught.value)
    assert "5000 bytes" in str(caught.value)
    assert caught.value.fields["bytes"] == 5000
    assert [entry.key for entry in store.list("")] == ["old/1"]
    assert leftovers(tmp_path) == []
    store.create("packs/new", b"later")
    assert store.get("packs/new", 5) == b"later"


def test_a_really_full_place(tmp_path: Path):
    """When the system itself refuses more bytes in the middle of a large file, it is StoreFull and nothing is left."""
    code = (
        "import mmap, resource, sys; from pathlib import Path\n"
        "from everstep.errors import StoreFull; from everstep.store.local import LocalStore\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, 5 << 20))\n"
        "store = LocalStore(Path(sys.argv[1])); store.create('fits', b'x' * (4 << 20))\n"
        "try: store.create('packs/1', memoryview(mmap.mmap(-1, 20 << 20)))\n"
        "except StoreFull as error: assert error.fields['bytes'] == 20 << 20; print(error)\n"
        "else: sys.exit('not refused')\n"
    )
    root = tmp_path / "s"
    done = subprocess.run([sys.executable, "-c", code, str(root)], check=True, capture_output=True, text=True)
    assert str(root / "packs/1") in done.stdout
    assert [entry.key for entry in LocalStore(root).list("")] == ["fits"]
    assert leftovers(root) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE) != (5 << 20, 5 << 20)


def test_failed_sync_of_a_file(tmp_path: Path):
    """EIO of the file's sync is an error that may not be retried; nothing becomes visible, nothing is left over."""
    store = LocalStore(tmp_path, calls=Failing("fsync", errno.EIO, at=2))
    with pytest.raises(StoreError) as caught:
        store.create("commits/1", b"x")
    assert not caught.value.retryable
    assert caught.value.fields["errno"] == "EIO"
    assert list(store.list("")) == []
    assert leftovers(tmp_path) == []


def test_failed_sync_of_a_folder_is_never_turned_into_success(tmp_path: Path):
    """After EIO of a folder's sync, once, no create in that folder by this store succeeds or says AlreadyExists."""
    LocalStore(tmp_path).create("commits/0", b"old")
    store = LocalStore(
        tmp_path, calls=Failing("fsync", errno.EIO, at=4)
    )  # root, file, its entry, then its name
    with pytest.raises(StoreError):
        store.create("commits/1", b"x")
    for key in ("commits/1", "commits/2", "commits/0"):
        with pytest.raises(StoreError, match="failed before") as caught:
            store.create(key, b"x")
        assert not isinstance(caught.value, AlreadyExists)
        assert not caught.value.retryable
    store.create("elsewhere/1", b"x")
    assert store.get("commits/0", 3) == b"old"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, AccessDenied),
        (errno.EROFS, AccessDenied),
        (errno.EIO, StoreError),
        (errno.EMFILE, StoreUnavailable),
        (errno.ESTALE, StoreUnavailable),
        (errno.ENAMETOOLONG, InvalidName),
    ],
)
def test_other_errors_have_names(tmp_path: Path, number: int, kind: type):
    """Each error number of the system becomes one of our errors, with the path and the key."""
    store = LocalStore(tmp_path, calls=Failing("open", number, at=2))  # the first one is of the root's parent
    with pytest.raises(kind) as caught:
        store.create("a/b", b"")
    assert type(caught.value) is kind
    assert caught.value.fields["path"] == str(tmp_path / "a/b")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_folders_of_others(tmp_path: Path):
    """A folder without permission is AccessDenied for writing and for reading."""
    LocalStore(tmp_path).create("a/b", b"1")
    (tmp_path / "a").chmod(0)
    try:
        for verb in (
            lambda: LocalStore(tmp_path).create("a/c", b"1"),
            lambda: LocalStore(tmp_path).get("a/b", 1),
            lambda: list(LocalStore(tmp_path).list("")),
            lambda: LocalStore(tmp_path).delete("a/b"),
        ):
            with pytest.raises(AccessDenied):
                verb()
    finally:
        (tmp_path / "a").chmod(0o755)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV])
def test_a_place_without_hard_links(tmp_path: Path, number: int):
    """A file system that cannot link is refused as unsuitable, and nothing is left over."""
    store = LocalStore(tmp_path, calls=Failing("link", number, on=True))
    with pytest.raises(UnsuitableStore, match="hard link"):
        store.create("a/b", b"1")
    assert list(store.list("")) == []
    assert leftovers(tmp_path) == []


def test_link_that_says_exists_after_its_own_success(tmp_path: Path):
    """On NFS a link that was repeated says EEXIST after it succeeded: the file is ours, and it is success."""

    class Nfs(Failing):
        def link(self, *args, **named):
            os.link(*args, **named)
            raise FileExistsError(errno.EEXIST, "File exists")

    store = LocalStore(tmp_path, calls=Nfs("", 0))
    store.create("a/b", b"mine")
    assert store.get("a/b", 4) == b"mine"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("times", "ends"), [(1, True), (3, True), (10_000, False)])
def test_a_folder_that_goes_away_under_a_create(tmp_path: Path, times: int, ends: bool):
    """A delete beside us may remove the folder while it is empty: it is made again, but not for ever."""

    class Contended(Failing):
        left = times

        def link(self, src, dst, *, src_dir_fd, dst_dir_fd):
            if self.left:
                self.left -= 1
                (tmp_path / "a/b").rmdir()
            os.link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    store = LocalStore(tmp_path, calls=Contended("", 0))
    if ends:
        store.create("a/b/c", b"1")
        assert store.get("a/b/c", 1) == b"1"
    else:
        with pytest.raises(StoreError, match="again and again"):
            store.create("a/b/c", b"1")
    assert leftovers(tmp_path) == []


def test_an_unfinished_file_that_is_swept_away(tmp_path: Path):
    """A writer that was stopped for days finds its unfinished file gone: an error, and nothing visible."""

    class Stopped(Failing):
        def link(self, src, dst, *, src_dir_fd, dst_dir_fd):
            (tmp_path / RESERVED / src).unlink()
            os.link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    store = LocalStore(tmp_path, calls=Stopped("", 0))
    with pytest.raises(StoreError, match="a/b"):
        store.create("a/b", b"1")
    assert list(store.list("")) == []


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="no direct writes here")
@pytest.mark.parametrize("allowed", [-1, 0, 1, 2, 3, 10_000])
@pytest.mark.parametrize("offset", [0, 1])
def test_direct_writes_are_given_up_where_they_are_refused(tmp_path: Path, allowed: int, offset: int):
    """Where direct writes are refused, at opening, at any block or for this memory, the bytes are written all the same."""

    class Picky(Failing):
        direct = 0

        def open(self, path, flags, mode=0o777, *, dir_fd=None):
            if allowed < 0 and flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, "no direct files")
            return os.open(path, flags, mode, dir_fd=dir_fd)

        def pwrite(self, fd, data, offset, /):
            if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
                if self.direct >= allowed:
                    raise OSError(errno.EINVAL, "not aligned")
                self.direct += 1
            return os.pwrite(fd, data, offset)

    room = mmap.mmap(-1, (33 << 20) + 5 + offset)
    room[:] = os.urandom(len(room))
    body = memoryview(room)[offset:]  # aligned to a page, or not
    LocalStore(tmp_path, calls=Picky("", 0)).create("a", body)
    assert LocalStore(tmp_path).get("a", len(body)) == body


# wrong places


MOUNTINFO = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:30 / {point} rw,nosuid shared:5 - {kind} {source} rw,user_id=0
31 22 0:31 / /other rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("kind", "source", "url"),
    [
        ("fuse.blobfuse2", "blobfuse2", "az://"),
        ("fuse.blobfuse", "blobfuse", "az://"),
        ("fuse", "blobfuse2", "az://"),
        ("fuse.gcsfuse", "my-bucket", "gs://"),
        ("fuse.s3fs", "s3fs", "s3://"),
        ("fuse.mountpoint-s3", "mountpoint-s3", "s3://"),
        ("fuse", "mountpoint-s3", "s3://"),
        ("fuse.rclone", "remote:bucket", "s3://"),
        ("fuse.goofys", "bucket", "s3://"),
    ],
)
def test_mounted_object_stores_are_refused(tmp_path: Path, kind: str, source: str, url: str):
    """A path on an object store's mount is refused when it is opened, and the URL to use is named."""
    point = tmp_path / "mnt point"
    info = tmp_path / "mountinfo"
    info.write_text(MOUNTINFO.format(point=str(point).replace(" ", "\\040"), kind=kind, source=source))
    for root in (point, point / "deep" / "below"):
        with pytest.raises(UnsuitableStore) as caught:
            LocalStore(root, mountinfo=info)
        assert url in caught.value.hint
        assert str(point) in str(caught.value)
    LocalStore(tmp_path / "mnt pointless", mountinfo=info)
    assert not point.exists()


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("fuse.sshfs", "host:/"),
        ("nfs4", "gcsfuse:/x"),
        ("lustre", "a@tcp:/fs"),
        ("fuse.juicefs", "JuiceFS:x"),
        ("xfs", "/dev/sdb"),
    ],
)
def test_real_file_systems_are_not_refused(tmp_path: Path, kind: str, source: str):
    """Network and other FUSE file systems that link and sync are places for a store."""
    info = tmp_path / "mountinfo"
    info.write_text(MOUNTINFO.format(point=tmp_path, kind=kind, source=source))
    LocalStore(tmp_path / "s", mountinfo=info).create("a", b"1")


def test_the_last_mount_on_a_point_counts(tmp_path: Path):
    """A mount hides what was mounted on the same point before."""
    info = tmp_path / "mountinfo"
    below = MOUNTINFO.format(point=tmp_path, kind="fuse.s3fs", source="s3fs")
    info.write_text(below + f"40 30 0:40 / {tmp_path} rw - ext4 /dev/sdc rw\n")
    LocalStore(tmp_path, mountinfo=info)


# links and things that are no files


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that no store owns."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_text("secret")
    return place


def test_symbolic_links_below_the_root_are_never_followed(tmp_path: Path, outside: Path):
    """A linked file or folder is neither read, listed, written through nor deleted through."""
    root = tmp_path / "s"
    store = LocalStore(root)
    store.create("a/real", b"1")
    (root / "folder").symlink_to(outside)
    (root / "a" / "file").symlink_to(outside / "secret")
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    into = memoryview(bytearray(3))
    for verb in (
        lambda: store.get("folder/secret", 100),
        lambda: store.get("a/file", 100),
        lambda: store.get_range("a/file", 0, into),
        lambda: store.create("folder/new", b"x"),
        lambda: store.create("a/file", b"x"),
        lambda: store.create("dangling", b"x"),
        lambda: store.delete("folder/secret"),
    ):
        with pytest.raises(UnsuitableStore, match="symbolic link"):
            verb()
    assert [entry.key for entry in store.list("")] == ["a/real"]
    with pytest.raises(UnsuitableStore, match="symbolic link"):
        list(store.list("folder/"))
    assert names_in(outside) == ["secret"]
    assert not (tmp_path / "nowhere").exists()


def test_the_unfinished_folder_is_no_link_either(tmp_path: Path, outside: Path):
    """Unfinished files are not written through a link."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / RESERVED).symlink_to(outside)
    with pytest.raises(UnsuitableStore, match="symbolic link"):
        LocalStore(tmp_path / "s").create("a", b"x")
    assert names_in(outside) == ["secret"]


def test_the_root_may_be_reached_by_a_link(tmp_path: Path):
    """A link to the root itself is the user's own way to name it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    LocalStore(tmp_path / "link").create("a/b", b"1")
    assert (tmp_path / "real/a/b").read_bytes() == b"1"


def test_things_that_are_no_files(tmp_path: Path):
    """A pipe is not waited for, not read and not listed."""
    store = LocalStore(tmp_path)
    store.create("a", b"1")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsuitableStore):
        store.get("pipe", 10)
    with pytest.raises(UnsuitableStore):
        store.create("pipe", b"1")
    assert [entry.key for entry in store.list("")] == ["a"]


def test_keys_below_keys(tmp_path: Path):
    """On a disk no key lies under another: a create that wants it is refused by name, both ways round."""
    store = LocalStore(tmp_path)
    store.create("a/b", b"1")
    for key in ("a", "a/b/c"):
        with pytest.raises(InvalidName) as caught:
            store.create(key, b"2")
        assert key in str(caught.value)
    assert store.get("a/b", 1) == b"1"
    with pytest.raises(ObjectNotFound):
        store.get("a", 1)
    assert leftovers(tmp_path) == []


# leftovers and folders


def test_leftovers_of_dead_processes_are_swept_after_an_hour(tmp_path: Path):
    """Unfinished files are never listed; the first create removes those older than an hour, and no others."""
    store = LocalStore(tmp_path)
    store.create("a", b"1")
    old, new = tmp_path / RESERVED / "1-old", tmp_path / RESERVED / "2-new"
    for one in (old, new):
        one.write_text("half")
    os.utime(old, (1_000_000, 1_000_000))
    os.utime(new, (1_000_000 + 120, 1_000_000 + 120))
    assert [entry.key for entry in store.list("")] == ["a"]
    next_store = LocalStore(tmp_path, clock=lambda: 1_000_000 + 3600 + 60)
    assert old.exists()
    next_store.create("b", b"1")
    assert leftovers(tmp_path) == ["2-new"]


def test_a_reader_makes_nothing(tmp_path: Path):
    """Opening, listing, reading and deleting in a place that is not there make no folder."""
    store = LocalStore(tmp_path / "none")
    assert list(store.list("")) == []
    with pytest.raises(ObjectNotFound):
        store.get("a/b", 1)
    store.delete("a/b")
    assert names_in(tmp_path) == []


def test_empty_folders_go_with_their_last_object(tmp_path: Path):
    """A delete leaves no empty folders behind, and none above that still have something."""
    store = LocalStore(tmp_path)
    for key in ("a/b/c/1", "a/b/c/2", "a/x"):
        store.create(key, b"")
    store.delete("a/b/c/1")
    assert (tmp_path / "a/b/c").exists()
    store.delete("a/b/c/2")
    assert names_in(tmp_path / "a") == ["x"]


def test_lists_enter_only_the_folders_they_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A list with a prefix and an after reads no folder that cannot have an answer."""
    store = LocalStore(tmp_path)
    for run in ("one", "two"):
        for n in range(5):
            store.create(f"runs/{run}/saves/{n}/x", b"")
    real, read = os.scandir, []
    monkeypatch.setattr(
        os, "scandir", lambda fd: (read.append(str(Path(f"/proc/self/fd/{fd}").readlink())), real(fd))[1]
    )
    got = [entry.key for entry in store.list("runs/one/saves/", "runs/one/saves/2~")]
    assert got == ["runs/one/saves/3/x", "runs/one/saves/4/x"]
    assert [path.removeprefix(f"{tmp_path}/") for path in read] == [
        "runs/one/saves",
        "runs/one/saves/3",
        "runs/one/saves/4",
    ]


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc to count descriptors in")
def test_descriptors_are_given_back(tmp_path: Path):
    """Many verbs, failing ones too, leave at most the pinned folders open; a store that is gone leaves none."""
    gc.collect()
    before = open_descriptors()
    store = LocalStore(tmp_path)
    for n in range(200):
        store.create(f"{n:03d}/{n}/x", b"")
        with pytest.raises(AlreadyExists):
            store.create(f"{n:03d}/{n}/x", b"")
        with pytest.raises(ObjectNotFound):
            store.get(f"{n:03d}/y/x", 1)
        with pytest.raises(InvalidName):
            store.create(f"{n:03d}/{n}", b"")
        next(store.list(""))
    assert open_descriptors() <= before + 64
    del store
    assert open_descriptors() == before
