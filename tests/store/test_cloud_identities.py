"""Tokens from services that sign in, and shared access signatures: the protocol as far as one machine can play it."""

import base64
import hashlib
import hmac
import json
import time
from urllib.parse import urlencode

import pytest

from everstep.errors import AccessDenied, StoreUnavailable
from tests.emulators.proxy import Answer, Proxy
from tests.store.clouds import SECRET, cloud_at

NO_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_CONFIG_FILE": "/nonexistent"}
LISTED = {
    "azure": b"<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>",
    "s3": b"<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount></ListBucketResult>",
}


@pytest.fixture
def service():
    """A server that plays the sign-in service and the store; what it says is the script's."""
    with Proxy("http://127.0.0.1:1") as proxy:
        yield proxy


def managed(service):
    """An Azure store that signs in by a managed identity."""
    return cloud_at(
        "az://box",
        AZURE_STORAGE_ACCOUNT="acc",
        AZURE_STORAGE_ENDPOINT=service.endpoint,
        AZURE_MSI_ENDPOINT=f"{service.endpoint}/identity",
        AZURE_CLIENT_ID="who",
    )


def test_a_managed_identitys_token_signs_requests(service):
    """The token is asked for once, for the client that was named, and sent with each request."""

    def say(asked):
        if asked.path.startswith("/identity"):
            token = {
                "access_token": SECRET,
                "expires_on": str(int(time.time()) + 3600),
                "expires_in": "3600",
                "resource": "r",
                "token_type": "Bearer",
            }
            return Answer(
                status=200, headers={"Content-Type": "application/json"}, body=json.dumps(token).encode()
            )
        return Answer(status=200, body=LISTED["azure"])

    service.script = say
    store = managed(service)
    assert list(store.list("")) == list(store.list("")) == []
    tokens = [asked for asked in service.asked if asked.path.startswith("/identity")]
    assert len(tokens) == 1
    assert "client_id=who" in tokens[0].path
    rest = [asked.headers["authorization"] for asked in service.asked if asked not in tokens]
    assert rest == [f"Bearer {SECRET}"] * 2


@pytest.mark.parametrize(("status", "wanted"), [(400, AccessDenied), (403, AccessDenied), (503, StoreUnavailable), (429, StoreUnavailable)])  # fmt: skip
def test_an_identity_that_is_refused_is_an_access_error_and_a_busy_service_is_not(service, status, wanted):
    """What may pass is tried again; what will not says how requests would have been signed."""
    service.script = lambda _asked: Answer(status=status, body=SECRET.encode())
    with pytest.raises(wanted) as caught:
        managed(service).get("k", 1)
    assert SECRET not in str(caught.value) + repr(caught.value.__context__)
    if wanted is AccessDenied:
        assert "managed identity" in caught.value.hint


def test_a_containers_role_signs_requests(service, tmp_path):
    """The keys come from the address the container was given, with its token."""
    (tmp_path / "token").write_text("pod-token")

    def say(asked):
        if asked.path == "/role":
            keys = {
                "AccessKeyId": "AKID",
                "SecretAccessKey": SECRET,
                "Token": "session",
                "Expiration": "2099-01-01T00:00:00Z",
            }
            return Answer(
                status=200, headers={"Content-Type": "application/json"}, body=json.dumps(keys).encode()
            )
        return Answer(status=200, body=LISTED["s3"])

    service.script = say
    store = cloud_at(
        "s3://bucket",
        AWS_ENDPOINT_URL=service.endpoint,
        AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{service.endpoint}/role",
        AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "token"),
        **NO_FILES,
    )
    assert list(store.list("")) == []
    role, listed = service.asked
    assert role.headers["authorization"] == "pod-token"
    assert "Credential=AKID/" in listed.headers["authorization"]
    assert listed.headers["x-amz-security-token"] == "session"


def test_a_session_token_is_sent(service):
    """Temporary keys are three texts."""
    service.script = lambda _asked: Answer(status=200, body=LISTED["s3"])
    store = cloud_at(
        "s3://bucket",
        AWS_ENDPOINT_URL=service.endpoint,
        AWS_ACCESS_KEY_ID="AKID",
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_SESSION_TOKEN="session",
        AWS_REGION="eu-west-7",
    )
    assert list(store.list("")) == []
    assert service.asked[0].headers["x-amz-security-token"] == "session"
    assert "/eu-west-7/s3/" in service.asked[0].headers["authorization"]


def sas(azurite, permissions: str, ends: str) -> str:
    """An account's shared access signature, as the portal makes it."""
    version, services, kinds, starts = "2021-12-02", "b", "co", "2020-01-01T00:00:00Z"
    lines = [azurite.account, permissions, services, kinds, starts, ends, "", "https,http", version, "", ""]
    text = "\n".join(lines)
    signature = hmac.digest(base64.b64decode(azurite.key), text.encode(), hashlib.sha256)
    fields = {
        "sv": version,
        "ss": services,
        "srt": kinds,
        "sp": permissions,
        "st": starts,
        "se": ends,
        "spr": "https,http",
        "sig": base64.b64encode(signature).decode(),
    }
    return urlencode(fields)


@pytest.mark.parametrize("form", ["token", "string"])
def test_a_shared_access_signature_opens_a_real_server(azurite, form):
    """As a token or inside a connection string; it saves, reads and lists; when it has ended the error says so."""

    def store(token):
        if form == "token":
            environ = {
                "AZURE_STORAGE_ACCOUNT": azurite.account,
                "AZURE_STORAGE_ENDPOINT": azurite.endpoint,
                "AZURE_STORAGE_SAS_TOKEN": f"?{token}",
            }
        else:
            text = f"BlobEndpoint={azurite.endpoint};SharedAccessSignature={token}"
            environ = {"AZURE_STORAGE_CONNECTION_STRING": text}
        return cloud_at(f"az://{container}/p", **environ)

    container = azurite.container()
    good = store(sas(azurite, "racwl", "2099-01-01T00:00:00Z"))
    good.create("k", b"1")
    assert good.get("k", 1) == b"1"
    assert [one.key for one in good.list("")] == ["k"]
    ended = store(sas(azurite, "racwl", "2021-01-01T00:00:00Z"))
    with pytest.raises(AccessDenied) as caught:
        ended.get("k", 1)
    assert "sig=" not in str(caught.value) + repr(caught.value.fields) + repr(ended)
    assert "ends 2021-01-01" in caught.value.hint
