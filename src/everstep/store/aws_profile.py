"""The plain key pairs in the AWS command line's own files."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from everstep.config import S3Settings, Secret
from everstep.errors import NotYetSupported, UsageError

__all__ = ["Profile", "read_profile"]

_FOREIGN = ("sso_session", "sso_start_url", "role_arn", "credential_process", "source_profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profile says, as far as it says it."""

    name: str
    access_key_id: str | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    region: str | None = None
    endpoint: str | None = None


def read_profile(settings: S3Settings) -> Profile:
    """The profile that is chosen, or ``default``; empty when no file has that.

    Raises `UsageError` when a chosen profile is nowhere, `NotYetSupported` when it signs in another way
    than by a key pair: SSO, an assumed role or a process.
    """
    name = settings.profile or "default"
    found = {
        **_section(_file(settings.config_file, "config"), name, f"profile {name}"),
        **_section(_file(settings.credentials_file, "credentials"), name),
    }
    if settings.profile and not found:
        raise UsageError(
            f"there is no AWS profile {name!r}",
            hint="AWS_PROFILE names a section of ~/.aws/credentials or config",
        )
    foreign = [key for key in _FOREIGN if key in found]
    if foreign and "aws_access_key_id" not in found:
        raise NotYetSupported(
            f"AWS profile {name!r} signs in by {foreign[0]}",
            hint=f'eval "$(aws configure export-credentials --profile {name} --format env)" gives plain keys',
            profile=name,
        )
    secret, token = found.get("aws_secret_access_key"), found.get("aws_session_token")
    return Profile(
        name=name,
        access_key_id=found.get("aws_access_key_id"),
        secret_access_key=Secret(secret) if secret else None,
        session_token=Secret(token) if token else None,
        region=found.get("region"),
        endpoint=found.get("endpoint_url"),
    )


def _file(chosen: str | None, name: str) -> Path | None:
    if chosen:
        return Path(chosen).expanduser()
    try:
        return Path.home() / ".aws" / name
    except RuntimeError:  # no home folder: then there are no files of the user's in it
        return None


def _section(file: Path | None, *names: str) -> Mapping[str, str]:
    if file is None or not file.is_file():
        return {}
    parser = configparser.RawConfigParser(default_section="\0")
    try:
        parser.read_string(file.read_text("utf-8"))
    except configparser.Error:
        # the parser's own message quotes lines, which may hold keys
        raise UsageError(
            f"{file} is not in AWS's format", hint="[section] lines, then name = value"
        ) from None
    return next((dict(parser[name]) for name in names if name in parser), {})
