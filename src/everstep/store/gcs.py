"""Google Cloud Storage: which endpoint, signed by what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from everstep.config import GcsSettings
from everstep.errors import NotYetSupported, UsageError
from everstep.store.endpoints import check_endpoint
from everstep.store.target import Target, parse_place

__all__ = ["gcs_target"]

_KINDS = ("service_account", "authorized_user")
_HINT = "GOOGLE_APPLICATION_CREDENTIALS names a service account's key file"


def gcs_target(url: str, settings: GcsSettings) -> Target:
    """The bucket of ``gs://bucket/prefix``.

    A token goes before a service account's key, an application credentials file, the login of the gcloud
    tool, and the machine's service account. An endpoint of one's own without any of these is an emulator
    and gets no credentials. Raises `UsageError`, `UnsuitableStore`, `NotYetSupported`.
    """
    place = parse_place(url)
    source = settings.sources
    address = settings.endpoint or "https://storage.googleapis.com"
    if "://" not in address:  # STORAGE_EMULATOR_HOST is often host:port alone
        address = f"http://{address}"
    endpoint = check_endpoint(address, source.get("endpoint", "the GCS endpoint"))
    config, credentials, fixed = _credentials(settings)
    if not config and (settings.endpoint or settings.anonymous):
        # the library asks for a token even to write without one: give it a word that means nobody
        config, credentials, fixed = (
            {"bearer_token": "anonymous"},
            "none: an emulator's endpoint is set",
            True,
        )
    return Target(
        kind="gcs",
        url=url,
        place=place,
        endpoint=endpoint,
        credentials=credentials,
        fixed=fixed,
        config={
            **config,
            "base_url": endpoint.url,
        },  # always said: the library would look into the environment
    )


def _credentials(settings: GcsSettings) -> tuple[Mapping[str, object], str, bool]:
    """What signs requests, where it comes from, and whether that needs no other host."""
    source = settings.sources
    if settings.token is not None:
        return {"bearer_token": settings.token.reveal()}, source.get("token", "the access token"), True
    if settings.service_account_key is not None:
        key = settings.service_account_key.reveal()
        where = source.get("service_account_key", "the service account's key")
        return {"service_account_key": key}, where, False
    if settings.application_credentials:
        where = source.get("application_credentials", "the application credentials")
        path = Path(settings.application_credentials).expanduser()
        _check_file(path, where)
        return {"application_credentials": str(path)}, where, False
    return {}, "no key or token is set, so gcloud's login or this machine's service account", False


def _check_file(path: Path, where: str) -> None:
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{where}: {path}: {error.strerror}", hint=_HINT, file=str(path)) from None
    except ValueError:  # the parser's message is not repeated: it may quote a key
        raise UsageError(f"{where}: {path} is not JSON", hint=_HINT, file=str(path)) from None
    kind = document.get("type") if isinstance(document, dict) else None
    if kind not in _KINDS:
        raise NotYetSupported(
            f"{where}: {path} holds credentials of another type than {' or '.join(_KINDS)}",
            hint="set GOOGLE_OAUTH_ACCESS_TOKEN to `gcloud auth print-access-token`, or use a key file",
            file=str(path),
        )
