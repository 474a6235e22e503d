"""The traces that come with the package."""

import hashlib
from importlib import resources

import pytest

from everstep.errors import UsageError
from everstep.planner.recorded import RECORDED, trace_of


def test_the_recorded_traces_say_what_their_page_says():
    """Length, machines, and how long one of them lived in the mean."""
    found = {name: trace_of(name) for name in RECORDED}
    assert {name: (one.most, round(one.ends_s / 3600, 1)) for name, one in found.items()} == {
        "bamboo-p2": (16, 88.7),
        "bamboo-g4dn": (12, 24.5),
        "bamboo-64": (75, 5.9),
    }
    assert [round(one.mtbf_s / 3600, 1) for one in found.values()] == [7.8, 2.4, 2.6]


def test_the_files_are_as_they_were_published():
    """Byte for byte, with the licence beside them."""
    folder = resources.files("everstep.planner").joinpath("traces")
    digests = {
        one.name: hashlib.sha256(one.read_bytes()).hexdigest()[:16]
        for one in folder.iterdir()
        if one.name != "README.md"
    }
    assert digests == {
        "LICENSE.bamboo": "f307215b25e50601",
        "bamboo-64.csv": "8c52e4d4aacf7117",
        "bamboo-g4dn.csv": "ae2d777db0631989",
        "bamboo-p2.csv": "2fe17bc77cc1ad48",
    }


def test_a_users_own_file_is_read(tmp_path):
    """By its path, also with the mark that some programs put in front."""
    own = tmp_path / "ours.csv"
    own.write_bytes(b"\xef\xbb\xbftime,machines\n0,4\n60,3\n120,4\n")
    assert trace_of(str(own)).most == 4


def test_a_trace_that_is_not_there_is_named_with_those_that_are(tmp_path):
    """Misspelt, missing, no text."""
    with pytest.raises(UsageError, match="there is no trace bambo-p2") as caught:
        trace_of("bambo-p2")
    assert "did you mean bamboo-p2?" in caught.value.hint
    (tmp_path / "noise.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        trace_of(str(tmp_path / "noise.csv"))
