"""Azurite, Microsoft's own emulator of Azure Storage."""

import base64
import hashlib
import hmac
import secrets
import urllib.request
from dataclasses import dataclass
from email.utils import formatdate

__all__ = ["Azurite", "azurite_at"]

# Azurite's documented account, the same everywhere: no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"


@dataclass(frozen=True, slots=True, kw_only=True)
class Azurite:
    """A running Azurite. ``endpoint`` ends with the account's name, as ``BlobEndpoint`` does."""

    endpoint: str
    account: str
    key: str

    @property
    def connection_string(self) -> str:
        """As Azure's portal shows it."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.account};AccountKey={self.key};"
            f"BlobEndpoint={self.endpoint};"
        )

    def container(self) -> str:
        """Make a new, empty container; its name."""
        name = f"test-{secrets.token_hex(8)}"
        self._put(name)
        return name

    def _put(self, container: str) -> None:
        date = formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": VERSION, "Content-Length": "0"}
        # https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key: twelve header lines,
        # all empty here, the x-ms- headers, the resource (with the account's name twice: it is in the path too)
        lines = [
            "PUT",
            *[""] * 11,
            f"x-ms-date:{date}",
            f"x-ms-version:{VERSION}",
            f"/{self.account}/{self.account}/{container}",
            "restype:container",
        ]
        digest = hmac.digest(base64.b64decode(self.key), "\n".join(lines).encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"
        url = f"{self.endpoint}/{container}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers)
        with urllib.request.urlopen(request, timeout=30):
            pass  # anything but 2xx raises


def azurite_at(port: int) -> Azurite:
    """The Azurite that listens on ``port``."""
    return Azurite(endpoint=f"http://127.0.0.1:{port}/{ACCOUNT}", account=ACCOUNT, key=KEY)
