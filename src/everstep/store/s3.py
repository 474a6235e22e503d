"""S3 and what speaks its protocol: which endpoint, which region, signed by what."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from everstep.config import S3Settings, Secret
from everstep.errors import UsageError
from everstep.store.aws_profile import read_profile
from everstep.store.endpoints import Endpoint, check_endpoint
from everstep.store.target import Target, parse_place

__all__ = ["s3_target"]

_REREAD_S = 600
"""Keys from a file are read again after this: tools that rotate them write them there."""


def s3_target(url: str, settings: S3Settings, clock: Callable[[], float] = time.time) -> Target:
    """The bucket of ``s3://bucket/prefix``.

    A key pair goes before web identity, a profile's key pair, a container's and then the instance's role.
    ``clock`` gives seconds since 1970. Raises `UsageError`, `UnsuitableStore`, `NotYetSupported`.
    """
    place = parse_place(url)
    source = settings.sources
    # a profile that cannot be used matters only when nothing before it signs
    before_profile = bool(settings.access_key_id or settings.web_identity_token_file)
    profile = None if before_profile and not settings.profile else read_profile(settings)
    region = settings.region or (profile and profile.region) or "us-east-1"
    address = settings.endpoint or (profile and profile.endpoint)
    aws = f"https://s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    endpoint = check_endpoint(address or aws, source.get("endpoint", "the S3 endpoint"))
    config: dict[str, object] = {"region": region, "disable_bulk_delete": True}
    config |= _integrity(endpoint, own=not address)
    express = place.container.endswith("--x-s3")
    if settings.virtual_hosted:
        config["virtual_hosted_style_request"] = True
    if express:
        config["s3_express"] = True
    else:  # always said: the library would look into the environment otherwise
        config["endpoint"] = config["aws_endpoint_url_s3"] = (
            _with_bucket(endpoint, place.container) if settings.virtual_hosted else endpoint.url
        )
    provider: Callable[[], Mapping[str, object]] | None = None
    if settings.access_key_id or settings.secret_access_key:
        pair = _pair(settings.access_key_id, settings.secret_access_key, settings.session_token)
        provider = lambda: {**pair, "expires_at": None}  # noqa: E731  # a value with no name of its own
        credentials = source.get("access_key_id", "the access key")
    elif settings.web_identity_token_file:
        config |= _given(settings, "web_identity_token_file", "role_arn", "role_session_name")
        credentials = "web identity of AWS_WEB_IDENTITY_TOKEN_FILE"
    elif profile and profile.access_key_id:

        def provider() -> Mapping[str, object]:
            now = read_profile(settings)
            until = dt.datetime.fromtimestamp(clock() + _REREAD_S, tz=dt.UTC)
            pair = _pair(now.access_key_id, now.secret_access_key, now.session_token)
            return {**pair, "expires_at": until}

        credentials = f"profile {profile.name!r}"
    elif settings.container_relative_uri or settings.container_full_uri:
        config |= _container(settings)
        credentials = "the container's role"
    else:
        credentials = "no keys, web identity or profile are set, so this instance's role"
    return Target(
        kind="s3",
        url=url,
        place=place,
        endpoint=endpoint,
        credentials=credentials,
        fixed=provider is not None and not express,
        config=config,
        client=_certificates(settings.ca_bundle),
        provider=provider,
        sorted_lists=not express,
    )


def _integrity(endpoint: Endpoint, *, own: bool) -> Mapping[str, object]:
    """How the server knows that a body arrived as it was sent.

    AWS itself checks a CRC; over TLS elsewhere the connection does; in the open the signature covers the
    body, at the price of its SHA-256. On loopback nothing can happen to it.
    """
    if own:
        return {"unsigned_payload": True, "checksum_algorithm": "CRC64NVME"}
    return {"unsigned_payload": endpoint.encrypted or endpoint.loopback}


def _pair(key: str | None, secret: Secret | None, token: Secret | None) -> Mapping[str, object]:
    if not key or secret is None:
        raise UsageError(
            "of an AWS key pair only one half is set",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, both in one place",
        )
    return {
        "access_key_id": key,
        "secret_access_key": secret.reveal(),
        "token": token.reveal() if token else None,
    }


def _given(settings: S3Settings, *names: str) -> Mapping[str, object]:
    return {name: value for name in names if (value := getattr(settings, name))}


def _container(settings: S3Settings) -> Mapping[str, object]:
    names = {
        "container_credentials_relative_uri": settings.container_relative_uri,
        "container_credentials_full_uri": settings.container_full_uri,
        "container_authorization_token_file": settings.container_token_file,
    }
    file = settings.container_token_file
    if (
        file
        and Path(file).is_file()
        and Path(file).read_text("utf-8").strip() != Path(file).read_text("utf-8")
    ):
        # the library panics on such a token: say it in words
        raise UsageError(
            f"{file} has spaces or a line end around the token",
            hint="write it with printf, not echo",
            file=file,
        )
    return {name: value for name, value in names.items() if value}


def _with_bucket(endpoint: Endpoint, bucket: str) -> str:
    parts = urlsplit(endpoint.url)
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


def _certificates(bundle: str | None) -> Mapping[str, object]:
    if not bundle:
        return {}
    try:
        return {"root_certificate": Path(bundle).read_bytes()}
    except OSError as error:
        raise UsageError(f"AWS_CA_BUNDLE: {bundle}: {error.strerror}", hint="name a PEM file") from None
