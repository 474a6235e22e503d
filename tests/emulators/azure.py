"""Azurite, Microsoft's own emulator of Azure Storage."""

import base64
import hashlib
import hmac
import secrets
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import urlencode

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

    def set_tier(self, container: str, name: str, tier: str, priority: str = "") -> None:
        """Move an object to ``Hot``, ``Cool``, ``Cold`` or ``Archive``."""
        headers = {"x-ms-access-tier": tier} | ({"x-ms-rehydrate-priority": priority} if priority else {})
        self._put(f"{container}/{name}", {"comp": "tier"}, headers)

    def _put(
        self, path: str, query: Mapping[str, str] | None = None, more: Mapping[str, str] | None = None
    ) -> None:
        asked = {"restype": "container"} if query is None else query
        date = formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": VERSION, **(more or {})}
        # https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key: twelve header lines,
        # all empty here, the x-ms- headers, the resource (with the account's name twice: it is in the path too)
        lines = [
            "PUT",
            *[""] * 11,
            *[f"{header}:{value}" for header, value in sorted(headers.items())],
            f"/{self.account}/{self.account}/{path}",
            *[f"{name}:{value}" for name, value in sorted(asked.items())],
        ]
        digest = hmac.digest(base64.b64decode(self.key), "\n".join(lines).encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"
        headers["Content-Length"] = "0"
        url = f"{self.endpoint}/{path}?{urlencode(asked)}"
        request = urllib.request.Request(url, method="PUT", headers=headers)
        with urllib.request.urlopen(request, timeout=30):
            pass  # anything but 2xx raises


def azurite_at(port: int) -> Azurite:
    """The Azurite that listens on ``port``."""
    return Azurite(endpoint=f"http://127.0.0.1:{port}/{ACCOUNT}", account=ACCOUNT, key=KEY)
