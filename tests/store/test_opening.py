"""From an address to a store."""

import subprocess
import sys
from pathlib import Path

import pytest

from everstep.errors import UnsuitableStore, UsageError
from everstep.store.opening import open_store


@pytest.mark.parametrize(
    "form", ["{0}", "file://{0}", "file://localhost{0}", "./place", "place", "../{1}/place"]
)
def test_forms_of_a_local_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str):
    """A path, relative or absolute, and a file URL open the same folder, which need not exist."""
    monkeypatch.chdir(tmp_path)
    store = open_store(form.format(tmp_path / "place", tmp_path.name))
    assert store.url == (tmp_path / "place").as_uri()
    assert not (tmp_path / "place").exists()
    store.create("k", b"1")
    assert (tmp_path / "place" / "k").read_bytes() == b"1"


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A path that begins with ~ lies in the home folder, and an unknown user is a usage error."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/place").url == (tmp_path / "place").as_uri()
    with pytest.raises(UsageError):
        open_store("~no-such-user-here/place")


def test_file_urls_are_unquoted(tmp_path: Path):
    """The URL of a store opens the store again, whatever its path has in it."""
    first = open_store(str(tmp_path / "a b#c?d%é"))
    first.create("k", b"1")
    assert open_store(first.url).get("k", 1) == b"1"


def test_memory_stores_are_shared_by_name():
    """One name is one store in this process; another name is another one."""
    open_store("memory://test-opening/one").create("k", b"1")
    assert open_store("memory://test-opening/one").get("k", 1) == b"1"
    assert list(open_store("memory://test-opening/two").list("")) == []


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("C:\\checkpoints", "Windows"),
        ("c:/checkpoints", "Windows"),
        ("file://server/share", "server"),
        ("file:place", "file:"),
        ("s3:bucket", "s3:"),
        ("ftp://host/x", "ftp://host"),
        ("http://169.254.169.254/latest/meta-data", "169.254.169.254"),
        ("https://user:c4n4ry@account.blob.core.windows.net/c?sig=c4n4ry", "account.blob.core.windows.net"),
        ("redis://:c4n4ry@host:1/0", "redis://host:1"),
        ("file://", "no folder"),
    ],
)
def test_what_is_no_address_is_refused(url: str, named: str):
    """Other schemes, drives and hosts are refused; the error names them and shows no secret of the address."""
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert named in str(caught.value)
    assert "c4n4ry" not in f"{caught.value!r} {caught.value} {caught.value.fields}"
    assert caught.value.hint


def test_a_file_is_no_store(tmp_path: Path):
    """A path to a file is refused when the store is opened."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UnsuitableStore, match="not a folder"):
        open_store(str(tmp_path / "file"))


def test_a_local_store_opens_without_the_library_of_clouds(tmp_path: Path):
    """Opening a local store imports neither obstore nor NumPy."""
    code = (
        "import sys; from everstep.store.opening import open_store; open_store(sys.argv[1]).create('k', b'1');"
        "assert not {'obstore', 'numpy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], check=True)
