"""From a cloud's variables to what signs requests: as each cloud's users expect, refused in words otherwise."""

import json

import pytest

from everstep.config import settings
from everstep.errors import AccessDenied, NotYetSupported, StoreError, UnsuitableStore, UsageError
from everstep.store.azure import azure_target, parse_connection_string
from everstep.store.cloud import open_cloud
from everstep.store.endpoints import check_endpoint
from everstep.store.gcs import gcs_target
from everstep.store.s3 import s3_target
from tests.store.clouds import NOWHERE, SECRET, cloud_at

KEY = "YzRuNHJ5LTVlY3JldA=="


def azure(url="az://box/team", **environ):
    """The Azure target that these variables give."""
    return azure_target(url, settings(environ=environ, folder=NOWHERE).stores.azure)


def s3(url="s3://bucket/team", **environ):
    """The S3 target that these variables give."""
    return s3_target(url, settings(environ=environ, folder=NOWHERE).stores.s3)


def gcs(url="gs://bucket/team", **environ):
    """The GCS target that these variables give."""
    return gcs_target(url, settings(environ=environ, folder=NOWHERE).stores.gcs)


# addresses


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://169.254.170.2",
        "https://2852039166",
        "http://0xa9fea9fe",
        "http://0251.0376.0251.0376",
        "http://[fd00:ec2::254]/",
        "http://[::ffff:169.254.169.254]",
        "http://[fe80::1]",
        "http://metadata.google.internal/",
        "http://METADATA.google.internal.:80",
        "http://168.63.129.16",
        "http://100.100.100.200",
        "http://0.0.0.0:9000",
    ],
)
def test_endpoints_that_hand_out_credentials_are_refused_by_host(url):
    """Link-local and metadata addresses, in every spelling a resolver takes, are no store."""
    with pytest.raises(UnsuitableStore) as caught:
        check_endpoint(url, "AWS_ENDPOINT_URL")
    assert caught.value.fields["host"] in url.lower()
    assert "AWS_ENDPOINT_URL" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc",
        "ftp://host",
        "http://",
        "host:9000",
        f"http://u:{SECRET}@host",
        f"http://h?sig={SECRET}",
        "http://[x",
    ],
)
def test_endpoints_of_another_kind_are_refused_without_repeating_them(url):
    """Only http and https, and nothing but host, port and path."""
    with pytest.raises(UsageError) as caught:
        check_endpoint(url, "AWS_ENDPOINT_URL")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("make", [azure, s3, gcs])
def test_every_cloud_refuses_a_metadata_endpoint(make):
    """Whichever variable names it."""
    name = {azure: "AZURE_STORAGE_ENDPOINT", s3: "AWS_ENDPOINT_URL_S3", gcs: "STORAGE_EMULATOR_HOST"}[make]
    with pytest.raises(UnsuitableStore, match=r"169\.254\.169\.254"):
        make(**{name: "http://169.254.169.254"})


@pytest.mark.parametrize(
    "url",
    [
        "az://",
        "az:///x",
        f"az://box/x?sig={SECRET}",
        f"az://key:{SECRET}@box",
        "az://box/../x",
        "az://box/a.",
        "az://box//a",
        "az://box/a b",
    ],
)
def test_addresses_that_cannot_be_are_refused_without_repeating_them(url):
    """A secret in the address of a store does not reach the error."""
    with pytest.raises(UsageError) as caught:
        azure(url, AZURE_STORAGE_ACCOUNT="acc", AZURE_STORAGE_KEY=KEY)
    assert SECRET not in str(caught.value)


# Azure


def test_a_connection_string_says_account_endpoint_and_key():
    """As the portal gives it, for the public cloud, another cloud, an endpoint of one's own and the emulator."""
    base = f"DefaultEndpointsProtocol=https;AccountName=acc;AccountKey={KEY}"
    for text, endpoint in (
        (base, "https://acc.blob.core.windows.net"),
        (f'"{base};EndpointSuffix=core.chinacloudapi.cn;"', "https://acc.blob.core.chinacloudapi.cn"),
        (base + ";BlobEndpoint=https://own.example/x/", "https://own.example/x"),
        ("UseDevelopmentStorage=true", "http://127.0.0.1:10000/devstoreaccount1"),
    ):
        target = azure(AZURE_STORAGE_CONNECTION_STRING=text, AZURE_STORAGE_SAS_TOKEN="sig=other")
        assert target.endpoint.url == endpoint
        assert target.config["credential_type"] == "access_key"
        assert target.credentials == "AZURE_STORAGE_CONNECTION_STRING"
        assert KEY not in repr(target)


def test_a_connection_string_may_hold_a_shared_access_signature():
    """Its end is told, its signature is not."""
    text = f"BlobEndpoint=https://acc.blob.core.windows.net/;SharedAccessSignature=se=2030-01-01&sig={SECRET}"
    target = azure(AZURE_STORAGE_CONNECTION_STRING=text)
    assert target.config["account_name"] == "acc"
    assert target.config["sas_key"] == f"se=2030-01-01&sig={SECRET}"
    assert target.credentials == "AZURE_STORAGE_CONNECTION_STRING (ends 2030-01-01)"
    assert SECRET not in repr(target)


def test_a_broken_connection_string_names_the_part_not_the_value():
    """The part's number is enough to find it."""
    with pytest.raises(UsageError, match="part 2") as caught:
        parse_connection_string(f"AccountName=acc;{SECRET}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "kind", "fixed"),
    [
        ({"AZURE_STORAGE_KEY": KEY, "AZURE_STORAGE_SAS_TOKEN": "sig=x"}, "access_key", True),
        ({"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=x"}, "sas_token", True),
        ({"AZURE_STORAGE_TOKEN": "t"}, "bearer_token", True),
        ({"AZURE_CLIENT_ID": "i", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "s"}, "client_secret", False),
        ({"AZURE_CLIENT_ID": "i", "AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": "/f"}, "workload_identity", False),
        ({"AZURE_USE_AZURE_CLI": "true"}, "azure_cli", False),
        ({"AZURE_CLIENT_ID": "i"}, "managed_identity", False),
        ({}, "managed_identity", False),
    ],
)  # fmt: skip
def test_azure_signs_with_the_first_that_is_set(environ, kind, fixed):
    """Each way is chosen by name, so that what else stands in the environment does not count."""
    target = azure(AZURE_STORAGE_ACCOUNT="acc", **environ)
    assert target.config["credential_type"] == kind
    assert target.fixed == fixed
    assert target.endpoint.url == "https://acc.blob.core.windows.net"


def test_azure_without_an_account_says_what_to_set():
    """No request is made to find out."""
    with pytest.raises(UsageError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        azure()
    with pytest.raises(UsageError, match="sig="):
        azure(AZURE_STORAGE_ACCOUNT="acc", AZURE_STORAGE_SAS_TOKEN=SECRET)


def test_a_key_in_the_wrong_form_is_told_without_it():
    """A key that is no base64 names its variable."""
    with pytest.raises(UsageError, match="AZURE_STORAGE_KEY") as caught:
        cloud_at("az://box", AZURE_STORAGE_ACCOUNT="acc", AZURE_STORAGE_KEY=SECRET + "!")
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None or SECRET not in str(caught.value.__context__)


def test_a_wrong_key_is_an_access_error_that_names_the_variable(azurite):
    """Against a real server that checks signatures."""
    environ = {
        "AZURE_STORAGE_ACCOUNT": azurite.account,
        "AZURE_STORAGE_KEY": KEY,
        "AZURE_STORAGE_ENDPOINT": azurite.endpoint,
    }
    store = cloud_at(f"az://{azurite.container()}", **environ)
    for ask in (lambda: store.create("k", b""), lambda: store.get("k", 1), lambda: list(store.list(""))):
        with pytest.raises(AccessDenied, match="AZURE_STORAGE_KEY") as caught:
            ask()
        assert KEY not in str(caught.value) + repr(caught.value.fields)


# S3


def test_a_key_pair_and_an_endpoint_of_its_own_service_first():
    """AWS_ENDPOINT_URL_S3 goes before AWS_ENDPOINT_URL; half a pair is refused."""
    target = s3(
        AWS_ACCESS_KEY_ID="id",
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_SESSION_TOKEN="t",
        AWS_ENDPOINT_URL="https://a.example",
        AWS_ENDPOINT_URL_S3="https://b.example",
    )
    assert target.endpoint.url == "https://b.example"
    assert target.provider() == {
        "access_key_id": "id",
        "secret_access_key": SECRET,
        "token": "t",
        "expires_at": None,
    }
    assert target.credentials == "AWS_ACCESS_KEY_ID"
    assert SECRET not in repr(target)
    with pytest.raises(UsageError, match="half"):
        s3(AWS_ACCESS_KEY_ID="id")


def test_the_host_follows_region_and_style():
    """Path style by default, the bucket in the host when asked, China's own domain."""
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": SECRET}
    assert s3(**keys, AWS_REGION="eu-west-1").endpoint.url == "https://s3.eu-west-1.amazonaws.com"
    assert s3(**keys, AWS_REGION="cn-north-1").endpoint.host == "s3.cn-north-1.amazonaws.com.cn"
    own = s3(**keys, AWS_ENDPOINT_URL="http://h.example:9000", AWS_VIRTUAL_HOSTED_STYLE_REQUEST="true")
    assert own.config["endpoint"] == "http://bucket.h.example:9000"


def test_a_body_is_covered_by_checksum_tls_or_signature():
    """AWS checks a CRC; TLS covers it elsewhere; in the open the signature does; loopback needs nothing."""
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": SECRET}
    assert s3(**keys).config["checksum_algorithm"] == "CRC64NVME"
    for url, unsigned in (
        ("https://h.example", True),
        ("http://h.example", False),
        ("http://127.0.0.1:9", True),
    ):
        assert s3(**keys, AWS_ENDPOINT_URL=url).config["unsigned_payload"] is unsigned


def test_a_profiles_keys_are_read_and_read_again(tmp_path):
    """Keys that a tool rotates in the file are taken up; region and endpoint come from the config file."""
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id=one\naws_secret_access_key={SECRET}\n[default]\naws_access_key_id=no\n"
    )
    (tmp_path / "config").write_text(
        "[profile work]\nregion = eu-west-3\nendpoint_url = https://own.example\n"
    )
    files = {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }
    target = s3(AWS_PROFILE="work", **files)
    assert target.config["region"] == "eu-west-3"
    assert target.endpoint.url == "https://own.example"
    assert target.provider()["access_key_id"] == "one"
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id=two\naws_secret_access_key=x\n")
    assert target.provider()["access_key_id"] == "two"
    with pytest.raises(UsageError, match="other"):
        s3(AWS_PROFILE="other", **files)


def test_a_profile_that_signs_in_otherwise_says_how_to_get_keys(tmp_path):
    """SSO, assumed roles and processes are the AWS tool's own; a broken file is told without its lines."""
    file = tmp_path / "config"
    for line in ("sso_session = s", "role_arn = r", "credential_process = p"):
        file.write_text(f"[profile work]\n{line}\n")
        with pytest.raises(NotYetSupported, match="export-credentials"):
            s3(AWS_PROFILE="work", AWS_CONFIG_FILE=str(file), AWS_SHARED_CREDENTIALS_FILE="/nonexistent")
    file.write_text(f"{SECRET}\n")
    with pytest.raises(UsageError, match="format") as caught:
        s3(AWS_PROFILE="work", AWS_CONFIG_FILE=str(file), AWS_SHARED_CREDENTIALS_FILE="/nonexistent")
    assert SECRET not in str(caught.value)


def test_roles_of_pods_containers_and_instances(tmp_path):
    """Each is chosen when the ones before it are not set; a token file with a line end is told in words."""
    none = {"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_CONFIG_FILE": "/nonexistent"}
    pod = s3(AWS_WEB_IDENTITY_TOKEN_FILE="/t", AWS_ROLE_ARN="arn", **none)
    assert (pod.config["web_identity_token_file"], pod.config["role_arn"], pod.fixed) == ("/t", "arn", False)
    box = s3(AWS_CONTAINER_CREDENTIALS_RELATIVE_URI="/v2", **none)
    assert box.config["container_credentials_relative_uri"] == "/v2"
    assert "instance's role" in s3(**none).credentials
    (tmp_path / "token").write_text(SECRET + "\n")
    with pytest.raises(UsageError, match="line end") as caught:
        s3(
            AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:1/v2",
            AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "token"),
            **none,
        )
    assert SECRET not in str(caught.value)


def test_a_panic_of_the_library_becomes_an_error(tmp_path):
    """It is no Exception; the token file got its line end after the store was opened."""
    file = tmp_path / "token"
    file.write_text(SECRET)
    store = cloud_at(
        "s3://bucket",
        AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:1/v2",
        AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(file),
        AWS_ENDPOINT_URL="http://127.0.0.1:1",
        AWS_SHARED_CREDENTIALS_FILE="/nonexistent",
        AWS_CONFIG_FILE="/nonexistent",
    )
    file.write_text(SECRET + "\n")
    with pytest.raises(StoreError, match="stopped on its own error") as caught:
        store.get("k", 1)
    assert SECRET not in str(caught.value)


# GCS


def test_an_emulators_endpoint_needs_no_credentials():
    """STORAGE_EMULATOR_HOST with or without its scheme."""
    for host in ("localhost:4443", "http://localhost:4443"):
        target = gcs(STORAGE_EMULATOR_HOST=host)
        assert target.config == {"bearer_token": "anonymous", "base_url": "http://localhost:4443"}
        assert target.fixed


def test_key_files_of_the_two_kinds_are_taken_and_others_told(tmp_path):
    """A federated credential is refused by name; a file that is none, without its content."""
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"type": "service_account", "private_key": SECRET}))
    target = gcs(GOOGLE_APPLICATION_CREDENTIALS=str(file))
    assert target.config["application_credentials"] == str(file)
    assert not target.fixed
    file.write_text(json.dumps({"type": "external_account"}))
    with pytest.raises(NotYetSupported, match="service_account or authorized_user"):
        gcs(GOOGLE_APPLICATION_CREDENTIALS=str(file))
    file.write_text(SECRET)
    for path in (file, tmp_path / "none"):
        with pytest.raises(UsageError, match="GOOGLE_APPLICATION_CREDENTIALS") as caught:
            gcs(GOOGLE_APPLICATION_CREDENTIALS=str(path))
        assert SECRET not in str(caught.value)


def test_other_schemes_are_no_clouds():
    """`open_cloud` opens az, s3 and gs alone."""
    with pytest.raises(UsageError, match="ftp"):
        open_cloud("ftp://x", settings(environ={}, folder=NOWHERE).stores, print)
