"""fake-gcs-server, which speaks Google Cloud Storage's JSON interface."""

import json
import secrets
import urllib.request
from dataclasses import dataclass

__all__ = ["GcsServer", "gcs_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsServer:
    """A running fake-gcs-server; it asks for no credentials."""

    endpoint: str

    @property
    def service_account_key(self) -> str:
        """JSON of a service account that signs nothing and talks to this server: obstore's way to an emulator."""
        return json.dumps(
            {
                "gcs_base_url": self.endpoint,
                "disable_oauth": True,
                "client_email": "",
                "private_key": "",
                "private_key_id": "",
            }
        )

    def bucket(self) -> str:
        """Make a new, empty bucket; its name."""
        name = f"test-{secrets.token_hex(8)}"
        request = urllib.request.Request(
            f"{self.endpoint}/storage/v1/b?project=test",
            method="POST",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30):
            pass  # anything but 2xx raises
        return name


def gcs_at(port: int) -> GcsServer:
    """The fake-gcs-server that listens on ``port``."""
    return GcsServer(endpoint=f"http://127.0.0.1:{port}")
