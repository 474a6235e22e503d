"""Checkpoints whose packs lie in an archive tier: nothing fails halfway, and the error says all that there is to know."""

import re
import secrets

import jmespath
import numpy as np
import pytest

import everstep as es
from everstep.errors import Archived
from everstep.events import FellBack, Retried
from everstep.store.opening import open_store
from tests.cli.worlds import ask
from tests.clouds.worlds import open_cloud
from tests.emulators.proxy import Answer, Pass
from tests.emulators.tiers import archive, bring_back

HERE = "tests.clouds.rank_trainings"
TIER = {"azure": "Archive", "s3": "DEEP_ARCHIVE"}


def quiet(_event) -> None:
    """Listens to nothing."""


@pytest.fixture(params=["azure", "s3"])
def tiered(request, monkeypatch):
    """The clouds with tiers that must be waited for."""
    for made in open_cloud(request.param, request):
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made


def state_at(step):
    """A tensor that stands still, and one that is another at each step: two packs for the second checkpoint."""
    return {"frozen": np.arange(50_000.0), "trained": np.full(9_000, float(step)), "step": step}


def same(state, step):
    """Whether it is that state, to the bit."""
    wanted = state_at(step)
    return state.keys() == wanted.keys() and all(np.array_equal(state[name], wanted[name]) for name in wanted)


def trained(url):
    """Two checkpoints; the keys of the packs, those of the first before that of the second."""
    with es.Checkpointer(url, "run", listener=quiet) as ckpt:
        for step in (1, 2):
            ckpt.save(step, state_at(step)).wait()
        return [one.key for one in sorted(ckpt._launch.repository.store.list("packs/"), key=owner)]


def owner(listed):
    """The save that a pack's key names."""
    return listed.key.split("/")[2]


def ranges(cloud):
    """The ranged reads of packs that were asked for."""
    return [asked for asked in cloud.proxy.asked if "packs" in asked.path and "range" in asked.headers]


def test_a_restore_is_refused_before_anything_changes_and_goes_on_later(tiered, request):
    """The newest checkpoint shares a pack that was archived: no bit of the state is changed, none of its other bytes is
    read, the older checkpoint is not taken in its place; brought back, the same call restores it (fault 37).
    """
    old, _ = trained(tiered.url)
    archive(request, tiered.url, old, TIER[tiered.kind])
    state, events = state_at(77), []
    with es.Checkpointer(tiered.url, "run", on_corrupt="previous", listener=events.append) as ckpt:
        tiered.proxy.forget()
        with pytest.raises(Archived) as caught:
            ckpt.restore(state)
        assert same(state, 77)
        assert {asked.headers["range"] for asked in ranges(tiered)} == {"bytes=0-0"}
        assert len(ranges(tiered)) == 3, "each pack is asked for, and that one again for the error"
        assert [event for event in events if isinstance(event, FellBack | Retried)] == []
        bring_back(request, tiered.url, old)
        assert ckpt.restore(state) == 2
    assert same(state, 2)
    told = caught.value
    assert told.message.startswith("run@2: 1 of the 2 packs it needs (4")
    assert TIER[tiered.kind] in told.message
    assert "nothing was changed" in told.message
    assert (told.fields["packs"], told.fields["step"], told.fields["key"]) == (1, 2, old)
    assert 470_000 < told.fields["bytes"] < 480_000


def test_an_older_checkpoint_that_does_not_need_it_is_restored(tiered, request):
    """Only packs that are needed are asked for."""
    _, new = trained(tiered.url)
    archive(request, tiered.url, new)
    state = state_at(77)
    with es.Checkpointer(tiered.url, "run", listener=quiet) as ckpt:
        assert ckpt.restore(state, step=1) == 1
    assert same(state, 1)
    assert np.array_equal(
        es.load(tiered.url, "run", step=2, only=["frozen"], listener=quiet)["frozen"], state["frozen"]
    )


def test_every_reader_of_a_checkpoint_stops_first(tiered, request, tmp_path, capsys, monkeypatch):
    """`load`, `export`, `cp`, `verify` and `diff`: the error, nothing written; a fork needs no packs."""
    monkeypatch.setenv("EVERSTEP_STORE", tiered.url)
    old, _ = trained(tiered.url)
    archive(request, tiered.url, old)
    with pytest.raises(Archived):
        es.load(tiered.url, "run", listener=quiet)
    for form in ("safetensors", "torch", "dcp"):
        words = ["export", "run@2", "--format", form, "--out", str(tmp_path / form)]
        assert error_of(ask(capsys, *words, "--json")) == "E-ARCHIVED", form
    assert list(tmp_path.iterdir()) == []
    assert error_of(ask(capsys, "verify", "run@2", "--json")) == "E-ARCHIVED"
    assert error_of(ask(capsys, "diff", "run@1", "run@2", "--json")) == "E-ARCHIVED"
    assert error_of(ask(capsys, "cp", "run", "--to", str(tmp_path / "copy"), "--json")) == "E-ARCHIVED"
    assert [
        one for one in (tmp_path / "copy").rglob("*") if "packs" in one.parts or "plans" in one.parts
    ] == []
    all_of_them = ask(capsys, "verify")
    assert (all_of_them.code, all_of_them.out) == (1, "")
    assert all_of_them.err.count("lie in an archive tier") == 2
    assert ask(capsys, "fork", "run@2", "other").code == 0


def error_of(answer):
    """The code in the JSON of a command that failed with exit 1, before it did anything."""
    assert answer.code == 1, answer.out + answer.err
    assert answer.json["error"]["message"].endswith("nothing was changed"), answer
    return answer.json["error"]["code"]


def test_the_error_tells_hours_dollars_and_commands(tiered, request):
    """For each speed how long and for how much, and the command of the cloud's own tool, with all that it needs."""
    old, _ = trained(tiered.url)
    archive(request, tiered.url, old, TIER[tiered.kind])
    with pytest.raises(Archived) as caught:
        es.load(tiered.url, "run", listener=quiet)
    hint, container = caught.value.hint, tiered.url.split("/")[2]
    ways = re.findall(r"^  (\S+), (\w+): within (.+?), about \$(\d[\d.e-]*) ", hint, re.MULTILINE)
    assert len(ways) == 2
    (command,) = caught.value.fields["commands"]
    assert command in hint
    for part in (
        container,
        f"{tiered.url.rpartition('/')[2]}/packs/",
        old.split("/")[2],
        tiered.proxy.endpoint,
    ):
        assert part in command
    if tiered.kind == "azure":
        assert [way[:3] for way in ways] == [
            ("Archive", "standard", "15 hours"),
            ("Archive", "high", "1 hour"),
        ]
        assert "az storage blob set-tier --blob-endpoint" in command
    else:
        assert [way[2] for way in ways] == ["12 hours", "2 days"]
        assert "s3api restore-object --bucket" in command
        server = request.getfixturevalue("moto_server")
        with server.client() as client:
            listed = client.list_objects_v2(Bucket=container)
        query = command.split(' --query "')[1].split('"')[0]
        found = jmespath.search(query, listed)
        assert found == [[f"{tiered.url.rpartition('/')[2]}/{old}"]], "what the command would bring back"


def test_what_is_archived_after_it_was_asked_for_is_told_halfway(s3):
    """A proxy refuses all but the first byte, as a rule does that runs in that moment: the error says that the state was
    changed in part.
    """
    trained(s3.url)
    body = b"<Error><Code>InvalidObjectState</Code><StorageClass>GLACIER</StorageClass></Error>"

    def moved(asked):
        range_ = asked.headers.get("range", "bytes=0-0")
        return Pass() if "packs" not in asked.path or range_ == "bytes=0-0" else Answer(status=403, body=body)

    s3.proxy.script = moved
    with es.Checkpointer(s3.url, "run", listener=quiet) as ckpt:
        with pytest.raises(Archived, match="the state was changed in part") as caught:
            ckpt.restore(state_at(77))
        assert "restore again before you train on" in caught.value.hint
        assert caught.value.fields["tier"] == "GLACIER"


@pytest.mark.parametrize("archived", ["all", "of rank 1"])
def test_all_ranks_stop_together(zygote, s3, request, archived):
    """Two ranks of two nodes, which both need both packs, or each its own and one of these is archived: both raise the same
    words and keep their states; the packs are dealt out, so each is asked for once.
    """
    told_by(zygote, "halves", s3, archived == "all")
    keys = [one for one in keys_of(s3) if archived == "all" or "/1-" in one]
    for key in keys:
        archive(request, s3.url, key)
    s3.proxy.forget()
    first, second = told_by(zygote, "thawing", s3, archived == "all")
    assert first[:2] == second[:2] == ["E-ARCHIVED", True]
    assert first[2] == second[2]
    assert f"{len(keys)} of the 2 packs" in first[2]
    asked = [one.path.rpartition("/")[2].partition("?")[0] for one in ranges(s3)]
    assert sorted(set(asked)) == ["0-0.safetensors", "1-0.safetensors"]
    assert len(asked) == 2 + len(keys), "once each, and once more for the error"
    for key in keys:
        bring_back(request, s3.url, key)
    assert [one[:2] for one in told_by(zygote, "thawing", s3, archived == "all")] == [["restored", True]] * 2


def told_by(zygote, function, cloud, *args):
    """What each of two ranks told."""
    ended = zygote.run(
        f"{HERE}:{function}", cloud.url, *args, EVERSTEP_LAUNCH=secrets.token_hex(8), **cloud.environ, world=2
    )
    assert [one.code for one in ended] == [0, 0], "\n".join(one.printed for one in ended)
    return [one.told[0] if one.told else None for one in ended]


def keys_of(cloud):
    """The keys of all packs."""
    return [one.key for one in open_store(cloud.url, listener=quiet).list("packs/")]
