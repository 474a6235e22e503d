"""The rules for the clouds to run, each document given to what takes it for real as far as that can be had here."""

import json
import re

import pytest

from everstep.errors import UsageError
from everstep.retention.lifecycle import document, plan_lifecycle

PLANS = [
    {"cool_after_days": 30},
    {"cool_after_days": 90, "tier": "GLACIER_IR"},
    {"cool_after_days": 1, "tier": "DEEP_ARCHIVE"},
    {},
    {"cool_after_days": 45, "abort_after_days": None},
]


@pytest.mark.parametrize("prefix", ["", "team/digits"])
@pytest.mark.parametrize("plan", PLANS)
def test_s3_takes_what_is_made(moto_server, plan, prefix):
    """Botocore's service model accepts the document, and moto takes it for a bucket and gives it back."""
    bucket = moto_server.bucket()
    made = document(plan_lifecycle("s3", bucket, prefix, **plan))
    with moto_server.client() as client:
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=made)
        found = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert [rule["Filter"] for rule in found] == [rule["Filter"] for rule in made["Rules"]]
    assert [rule.get("Transitions") for rule in found] == [rule.get("Transitions") for rule in made["Rules"]]
    assert len({rule["ID"] for rule in made["Rules"]}) == len(made["Rules"])


@pytest.mark.parametrize("prefix", ["", "team/digits"])
def test_gcs_gets_the_documented_form(prefix):
    """Names and types of Google's discovery document (storage v1, Bucket.lifecycle), against which it was checked by hand
    too: fake-gcs-server keeps no lifecycle.
    """
    made = document(plan_lifecycle("gcs", "bucket", prefix, cool_after_days=30))
    clear, move = made["lifecycle"]["rule"]
    below = f"{prefix}/" if prefix else ""
    assert clear["action"] == {"type": "AbortIncompleteMultipartUpload"}
    assert clear["condition"] == {"age": 7, **({"matchesPrefix": [below]} if prefix else {})}
    assert move["action"] == {"type": "SetStorageClass", "storageClass": "NEARLINE"}
    assert move["condition"] == {
        "age": 30,
        "matchesPrefix": [f"{below}packs/"],
        "matchesStorageClass": ["STANDARD"],
    }


def test_azure_gets_the_documented_form():
    """The structure that Microsoft documents, field by field, as azure-mgmt-storage 25 read it too, by hand: Azurite has
    no management plane. What was brought back from the archive stays out of it for a week.
    """
    made = document(plan_lifecycle("azure", "ckpt", "team/digits", cool_after_days=30))
    (rule,) = made["rules"]
    assert rule.keys() == {"enabled", "name", "type", "definition"}
    assert (rule["enabled"], rule["type"]) == (True, "Lifecycle")
    assert re.fullmatch(r"[A-Za-z0-9]{1,256}", rule["name"])
    assert rule["definition"] == {
        "filters": {"blobTypes": ["blockBlob"], "prefixMatch": ["ckpt/team/digits/packs/"]},
        "actions": {"baseBlob": {"tierToCool": {"daysAfterModificationGreaterThan": 30}}},
    }
    for tier in ("Cold", "Archive"):
        (rule,) = document(plan_lifecycle("azure", "ckpt", cool_after_days=100, tier=tier))["rules"]
        age = {"daysAfterModificationGreaterThan": 100}
        stays = {"daysAfterLastTierChangeGreaterThan": 7} if tier == "Archive" else {}
        assert rule["definition"]["actions"]["baseBlob"] == {f"tierTo{tier}": age | stays}
        assert rule["definition"]["filters"]["prefixMatch"] == ["ckpt/packs/"]
    assert document(plan_lifecycle("azure", "ckpt")) is None, "Azure clears unfinished uploads by itself"


def everything(made):
    """All keys and words of a document."""
    if isinstance(made, dict):
        for key, value in made.items():
            yield key
            yield from everything(value)
    elif isinstance(made, list):
        for value in made:
            yield from everything(value)
    else:
        yield made


@pytest.mark.parametrize("cloud", ["azure", "s3", "gcs"])
def test_no_rule_deletes_and_none_moves_anything_but_packs(cloud):
    """Commit records, tombs, manifests and all that is small stay where reading costs nothing."""
    made = document(plan_lifecycle(cloud, "bucket", "team", cool_after_days=30))
    words = [str(word) for word in everything(made)]
    assert not [word for word in words if re.search("(?i)delet|expir", word)]
    moved = json.dumps(
        [one for one in made.get("Rules", made.get("rules", [])) if "Abort" not in json.dumps(one)]
        or [one for one in made["lifecycle"]["rule"] if "Abort" not in json.dumps(one)]
    )
    assert "team/packs/" in moved
    assert set(re.findall(r'"([^"]*team/[^"]*)"', moved)) <= {
        "team/packs/",
        "bucket/team/packs/",
        "everstep-packs-team/",
    }


@pytest.mark.parametrize("cloud", ["azure", "s3", "gcs"])
def test_by_default_nothing_goes_where_it_must_be_waited_for(cloud):
    """An archive tier must be named, and is warned of; a minimum of days is told in any case."""
    usual = plan_lifecycle(cloud, "bucket", cool_after_days=30)
    assert usual.tier is not None
    assert usual.tier.instant
    assert any("billed for 30 days" in words for words in usual.warnings)
    assert any("merge it" in words for words in usual.warnings)
    named = {"azure": "archive", "s3": "deep-archive", "gcs": "archive"}[cloud]
    archive = plan_lifecycle(cloud, "bucket", cool_after_days=200, tier=named)
    assert any("gives no bytes at once" in words for words in archive.warnings) == (cloud != "gcs")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"cool_after_days": 0}, "after 0 days"),
        ({"cool_after_days": -3}, "after -3 days"),
        ({"cool_after_days": 10**6}, "after 1000000 days"),
        ({"cool_after_days": 10}, "before it is 30 days old"),
        ({"cool_after_days": 30, "tier": "GLACIR"}, "has no tier 'GLACIR'"),
        ({"cool_after_days": 30, "tier": "Cool"}, "has no tier 'Cool'"),
        ({"tier": "GLACIER"}, "needs an age"),
        ({"abort_after_days": 0}, "cleared after 0 days"),
    ],
)
def test_what_the_cloud_would_refuse_is_refused_here(words, told):
    """By name, with the correct form."""
    with pytest.raises(UsageError, match=re.escape(told)) as caught:
        plan_lifecycle("s3", "bucket", **words)
    assert caught.value.hint
