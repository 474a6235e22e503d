"""doctor tries a store's promises on the store itself."""

import os

import pytest

from everstep.store.opening import open_store
from tests.cli.worlds import ask, trained

CANARY = "c4n4ry-5ecret"


def test_a_good_store_is_healthy_and_left_as_it_was(tmp_path, capsys):
    """Everything is tried, and the probe is removed."""
    store = trained(tmp_path / "store", steps=(10,))
    before = sorted((tmp_path / "store").rglob("*"))
    answer = ask(capsys, "doctor", "--store", store, "--probe-mb", "1", "--json")
    assert answer.code == 0
    assert answer.json["healthy"] is True
    names = [check["name"] for check in answer.json["checks"]]
    assert names == [
        "versions", "file system", "free space", "write", "conditional create", "read", "range read",
        "list and clock", "upload", "download", "delete",
    ]  # fmt: skip
    assert sorted((tmp_path / "store").rglob("*")) == before


def test_a_folder_that_is_not_there_is_not_left_behind(tmp_path, capsys):
    """A doctor does not make stores."""
    answer = ask(capsys, "doctor", "--store", tmp_path / "new", "--probe-mb", "1")
    assert answer.code == 0
    assert "not there yet" in answer.out
    assert not (tmp_path / "new").exists()


def test_without_a_store_versions_are_shown(tmp_path, capsys, monkeypatch):
    """The first thing a bug report needs."""
    monkeypatch.chdir(tmp_path)
    answer = ask(capsys, "doctor")
    assert answer.code == 0
    assert "everstep" in answer.out
    assert "no store is named" in answer.out


def test_a_place_that_cannot_be_a_store_fails_with_words(tmp_path, capsys):
    """A file where the folder should be."""
    (tmp_path / "file").write_text("")
    answer = ask(capsys, "doctor", "--store", tmp_path / "file")
    assert answer.code == 1
    assert "is not a folder" in answer.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_only_be_read_is_access_denied(tmp_path, capsys):
    """Exit 4, naming the folder."""
    (tmp_path / "sealed").mkdir(mode=0o555)
    answer = ask(capsys, "doctor", "--store", tmp_path / "sealed", "--probe-mb", "1")
    assert answer.code == 4
    assert "failed   write" in answer.out
    assert str(tmp_path / "sealed") in answer.out


def test_a_wrong_address_is_a_usage_error(capsys):
    """No probe is made."""
    assert ask(capsys, "doctor", "--store", "ftp://host/x").code == 2


@pytest.fixture(params=["azure", "s3", "gcs"])
def cloud(request):
    """Each cloud's emulator: an address in it, and what a user has in the environment."""
    if request.param == "azure":
        server = request.getfixturevalue("azurite")
        environ = {
            "AZURE_STORAGE_ACCOUNT_NAME": server.account,
            "AZURE_STORAGE_KEY": server.key,
            "AZURE_STORAGE_ENDPOINT": server.endpoint,
        }
        return f"az://{server.container()}/doctor", environ, server.key
    if request.param == "s3":
        server = request.getfixturevalue("moto_server")
        return f"s3://{server.bucket()}/doctor", s3_environ(server), CANARY
    server = request.getfixturevalue("gcs_server")
    environ = {"STORAGE_EMULATOR_HOST": server.endpoint, "GOOGLE_OAUTH_ACCESS_TOKEN": CANARY}
    return f"gs://{server.bucket()}/doctor", environ, CANARY


def s3_environ(server):
    """What a user of this server has in the environment."""
    return {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_ENDPOINT_URL": server.endpoint,
    }


def test_real_servers_are_healthy_and_credentials_stand_by_name_only(cloud, capsys, monkeypatch):
    """On each cloud's emulator every promise holds; the secret is nowhere in the answer."""
    url, environ, secret = cloud
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    answer = ask(capsys, "doctor", "--store", url, "--probe-mb", "1", "--json")
    assert answer.code == 0, answer.out
    found = {check["name"]: check for check in answer.json["checks"]}
    assert any(name in found["credentials"]["found"] for name in environ)
    assert found["list and clock"]["number"] == 0
    assert secret not in answer.out + answer.err


def test_a_server_that_ignores_the_condition_fails_with_words(careless_s3, capsys, monkeypatch):
    """Exit 1: two writers would both believe that they won."""
    for name, value in s3_environ(careless_s3).items():
        monkeypatch.setenv(name, value)
    answer = ask(capsys, "doctor", "--store", f"s3://{careless_s3.bucket()}/x", "--probe-mb", "1")
    assert answer.code == 1
    assert "failed   conditional create" in answer.out
    assert "If-None-Match" in answer.out


def test_a_server_that_nobody_answers_at_is_try_again(capsys, monkeypatch):
    """Exit 5, and soon: a doctor is not as patient as a training."""
    environ = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    answer = ask(capsys, "doctor", "--store", "s3://bucket/x", "--probe-mb", "1")
    assert answer.code == 5
    assert "failed   write" in answer.out
    assert CANARY not in answer.out + answer.err


def test_a_memory_store_can_be_examined(capsys):
    """Also a store without a disk."""
    answer = ask(capsys, "doctor", "--store", "memory://doctor", "--probe-mb", "1")
    assert answer.code == 0
    assert list(open_store("memory://doctor").list("")) == []
