"""doctor says what a cloud should do over a store by itself, and prints the rules for it."""

import json

import numpy as np
import pytest

import everstep as es
from tests.cli.test_doctor import cloud
from tests.cli.worlds import ask

__all__ = ["cloud"]

NAMES = ["unfinished uploads", "tiers", "deleted bytes"]


@pytest.fixture
def place(cloud, monkeypatch):
    """Each cloud's emulator in turn: the address of an empty place."""
    url, environ, _ = cloud
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return url


def advised(capsys, url):
    """The last three checks of a doctor's document, by name."""
    answer = ask(capsys, "doctor", "--store", url, "--probe-mb", "1", "--json")
    assert answer.code == 0, answer.out
    assert [check["name"] for check in answer.json["checks"]][-3:] == NAMES
    return {check["name"]: check for check in answer.json["checks"]}


def trained(url, run, keep):
    """A run of two checkpoints with a policy."""
    with es.Checkpointer(url, run, keep=keep, listener=lambda _event: None) as ckpt:
        ckpt.save(1, {"w": np.ones(10)}).wait()
        ckpt.save(2, {"w": np.zeros(10)}).wait()


def test_advice_for_a_store_without_runs(place, capsys):
    """What to look at, and by which command."""
    found = advised(capsys, place)
    assert found["tiers"]["status"] == "skipped"
    assert found["deleted bytes"]["status"] == "advice"
    kind, bucket = place.split("://")[0], place.split("/")[2]
    tool = {"az": "az storage account", "s3": "get-bucket-versioning", "gs": "gcloud storage"}[kind]
    assert tool in found["deleted bytes"]["hint"]
    assert kind == "az" or bucket in found["deleted bytes"]["hint"]
    assert "not seen here" in found["deleted bytes"]["found"]
    assert found["unfinished uploads"]["status"] == ("ok" if kind == "az" else "advice")
    assert ask(capsys, "ls", "--store", place).code == 3, "a doctor makes no store"


def test_advice_goes_by_what_the_runs_keep(azurite, capsys, monkeypatch):
    """Short-lived packs stay where they are; a run that keeps some without an end should move them."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string)
    url = f"az://{azurite.container()}/x"
    trained(url, "short", "last 3, daily 5")
    found = advised(capsys, url)["tiers"]
    assert found["status"] == "ok"
    assert "short: it keeps last 3, daily 5, so packs live 5 days" in found["found"]
    assert "leave packs where they are" in found["found"]
    trained(url, "long", "last 3, every 1000")
    found = advised(capsys, url)["tiers"]
    assert found["status"] == "advice"
    assert "long (of 2 runs the one that keeps longest): it keeps last 3, every 1000" in found["found"]
    assert "Cool after 30 days pays for packs that live 52 days and more" in found["found"]
    assert "--lifecycle --cool-after 30d" in found["hint"]


def test_another_server_that_speaks_s3_has_tiers_of_its_own(moto_server, capsys, monkeypatch):
    """Nobody knows its prices."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_server.endpoint)
    found = advised(capsys, f"s3://{moto_server.bucket()}/x")
    assert found["tiers"]["status"] == "skipped"
    assert "is not Amazon's" in found["tiers"]["found"]
    assert f"--endpoint-url {moto_server.endpoint}" in found["deleted bytes"]["hint"]


def test_the_rules_are_printed_and_taken(moto_server, capsys, monkeypatch):
    """On stdout nothing but the document, which the server takes; on stderr what to know and the command. No request is
    made.
    """
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    bucket = moto_server.bucket()
    words = ("doctor", "--store", f"s3://{bucket}/team", "--lifecycle", "--cool-after", "60d")
    answer = ask(capsys, *words)
    assert answer.code == 0, answer.err
    made = json.loads(answer.out)
    with moto_server.client() as client:
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=made)
    assert made["Rules"][1]["Transitions"] == [{"Days": 60, "StorageClass": "STANDARD_IA"}]
    assert "merge it" in answer.err
    assert "put-bucket-lifecycle-configuration --bucket" in answer.err
    again = ask(capsys, *words, "--json")
    assert again.json["lifecycle"]["document"] == made
    assert (again.json["lifecycle"]["tier"], again.json["lifecycle"]["cool_after_days"]) == (
        "STANDARD_IA",
        60,
    )
    assert "put-bucket-lifecycle" in again.json["lifecycle"]["apply"]


def test_azure_and_gcs_rules(capsys, monkeypatch):
    """The account's or the bucket's own command; Azure has nothing to set unless packs are to move."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acc")
    nothing = ask(capsys, "doctor", "--store", "az://ckpt/team", "--lifecycle")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing to set" in nothing.err
    assert (
        ask(capsys, "doctor", "--store", "az://ckpt", "--lifecycle", "--json").json["lifecycle"]["document"]
        is None
    )
    archive = ask(
        capsys, "doctor", "--store", "az://ckpt", "--lifecycle", "--cool-after", "26w", "--tier", "archive"
    )
    assert "tierToArchive" in archive.out
    assert "gives no bytes at once" in archive.err
    assert "--account-name acc" in archive.err
    google = ask(capsys, "doctor", "--store", "gs://ckpt", "--lifecycle")
    assert [rule["action"]["type"] for rule in json.loads(google.out)["lifecycle"]["rule"]] == [
        "AbortIncompleteMultipartUpload"
    ]
    assert "gcloud storage buckets update gs://ckpt" in google.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--lifecycle", "--store", "/tmp"), "only cloud stores"),
        (("--lifecycle",), "no store is named"),
        (("--lifecycle", "--store", "s3://b", "--cool-after", "soon"), "is no number of days"),
        (("--lifecycle", "--store", "s3://b", "--cool-after", "36h"), "is no number of days"),
        (("--lifecycle", "--store", "s3://b", "--cool-after", "7d"), "before it is 30 days old"),
        (("--lifecycle", "--store", "s3://b", "--cool-after", "30d", "--tier", "cool"), "has no tier"),
        (("--lifecycle", "--store", "s3://b", "--tier", "GLACIER"), "needs an age"),
        (("--store", "s3://b", "--cool-after", "30d"), "are for --lifecycle"),
    ],
)
def test_wrong_words(words, told, capsys, monkeypatch, tmp_path):
    """Exit 2, saying how it is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERSTEP_STORE", raising=False)
    answer = ask(capsys, "doctor", *words)
    assert answer.code == 2, answer.err
    assert told in answer.err
    assert "hint:" in answer.err
