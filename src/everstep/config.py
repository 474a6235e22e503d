# ruff: noqa: RUF009  (_setting is a field, with its variables beside its default)
"""Settings: flag > environment > file > default. The only reader of the environment in the package."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeVar

from everstep.errors import UsageError
from everstep.units import parse_bytes, parse_seconds

__all__ = [
    "AzureSettings",
    "GcsSettings",
    "ProcessSettings",
    "S3Settings",
    "Secret",
    "Settings",
    "StoreSettings",
    "child_environment",
    "no_color",
    "process_settings",
    "settings",
]

_T = TypeVar("_T")


class Secret:
    """A text that is shown nowhere: not by ``repr``, ``str`` or formatting, and it is not pickled."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the library that signs requests."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret does not leave its process")


def _text(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise ValueError("a text without control characters")


def _part(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value):
        return value
    raise ValueError("letters, digits, '-' and '_', at most 100")


def _secret(value: object) -> Secret:
    if isinstance(value, str) and value.strip().isprintable():
        return Secret(value.strip())
    raise ValueError("a text on one line")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise ValueError("true or false")


def _count(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.strip()):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError("a whole number from 1 on")


def _number(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return int(value)
    raise ValueError("a whole number from 0 on")


def _bytes(value: object) -> int:
    if isinstance(value, str):
        value = parse_bytes(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError("a size such as 268435456, 256MiB or 1.5GB")


def _seconds(value: object) -> float:
    if isinstance(value, str):
        return parse_seconds(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
        return float(value)
    raise ValueError("a duration such as 30s, 10m, 2h or 7d")


def _one_of(*words: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(" or ".join(words))

    return check


def _setting(default: _T, read: Callable[[object], object], *variables: str) -> _T:
    """A field: its default, what makes a value of it, and the variables that set it, the first one first."""
    made: _T = field(default=default, metadata={"read": read, "variables": variables})
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """How to reach Azure Blob storage. ``sources`` names what was set, for errors."""

    account: str | None = _setting(None, _text, "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
    key: Secret | None = _setting(
        None, _secret, "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"
    )
    sas: Secret | None = _setting(None, _secret, "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
    connection_string: Secret | None = _setting(None, _secret, "AZURE_STORAGE_CONNECTION_STRING")
    token: Secret | None = _setting(None, _secret, "AZURE_STORAGE_TOKEN")
    endpoint: str | None = _setting(
        None, _text, "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_ENDPOINT"
    )
    client_id: str | None = _setting(None, _text, "AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID")
    client_secret: Secret | None = _setting(
        None, _secret, "AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"
    )
    tenant_id: str | None = _setting(None, _text, "AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID")
    federated_token_file: str | None = _setting(None, _text, "AZURE_FEDERATED_TOKEN_FILE")
    authority_host: str | None = _setting(None, _text, "AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST")
    identity_endpoint: str | None = _setting(
        None, _text, "AZURE_MSI_ENDPOINT", "IDENTITY_ENDPOINT", "MSI_ENDPOINT"
    )
    use_azure_cli: bool = _setting(False, _flag, "AZURE_USE_AZURE_CLI")
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How to reach S3 and stores that speak its protocol."""

    access_key_id: str | None = _setting(None, _text, "AWS_ACCESS_KEY_ID")
    secret_access_key: Secret | None = _setting(None, _secret, "AWS_SECRET_ACCESS_KEY")
    session_token: Secret | None = _setting(None, _secret, "AWS_SESSION_TOKEN")
    region: str | None = _setting(None, _text, "AWS_REGION", "AWS_DEFAULT_REGION")
    endpoint: str | None = _setting(None, _text, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    profile: str | None = _setting(None, _text, "AWS_PROFILE", "AWS_DEFAULT_PROFILE")
    credentials_file: str | None = _setting(None, _text, "AWS_SHARED_CREDENTIALS_FILE")
    config_file: str | None = _setting(None, _text, "AWS_CONFIG_FILE")
    web_identity_token_file: str | None = _setting(None, _text, "AWS_WEB_IDENTITY_TOKEN_FILE")
    role_arn: str | None = _setting(None, _text, "AWS_ROLE_ARN")
    role_session_name: str | None = _setting(None, _text, "AWS_ROLE_SESSION_NAME")
    container_relative_uri: str | None = _setting(None, _text, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    container_full_uri: str | None = _setting(None, _text, "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    container_token_file: str | None = _setting(None, _text, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    virtual_hosted: bool | None = _setting(None, _flag, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST")
    ca_bundle: str | None = _setting(None, _text, "AWS_CA_BUNDLE")
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsSettings:
    """How to reach Google Cloud Storage."""

    application_credentials: str | None = _setting(
        None, _text, "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"
    )
    service_account_key: Secret | None = _setting(None, _secret, "GOOGLE_SERVICE_ACCOUNT_KEY")
    token: Secret | None = _setting(None, _secret, "GOOGLE_OAUTH_ACCESS_TOKEN")
    endpoint: str | None = _setting(None, _text, "STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL")
    anonymous: bool = _setting(False, _flag, "GOOGLE_SKIP_SIGNATURE")
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Credentials and endpoints of each cloud, and how patient a request is.

    ``slowest`` is the rate, in bytes per second, below which an upload counts as stalled; ``proxies`` are the
    proxy variables that are set (their addresses may hold passwords, so only names are kept).
    """

    azure: AzureSettings = field(default_factory=AzureSettings)
    s3: S3Settings = field(default_factory=S3Settings)
    gcs: GcsSettings = field(default_factory=GcsSettings)
    slowest: int = _setting(256 * 2**10, _bytes, "EVERSTEP_SLOWEST")
    proxies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a user can set. ``budget_bytes`` bounds the memory of reads in flight."""

    store: str | None = _setting(None, _text, "EVERSTEP_STORE")
    run: str | None = _setting(None, _text, "EVERSTEP_RUN")
    on_corrupt: str = _setting("previous", _one_of("previous", "fail"), "EVERSTEP_ON_CORRUPT")
    workers: int = _setting(4, _count, "EVERSTEP_WORKERS")
    budget_bytes: int = _setting(256 * 2**20, _bytes, "EVERSTEP_BUDGET_BYTES")
    every: str | None = _setting(None, _text, "EVERSTEP_EVERY")
    keep: str | None = _setting(None, _text, "EVERSTEP_KEEP")
    grace: float = _setting(0.0, _seconds, "EVERSTEP_GRACE")
    show_progress: str = _setting("auto", _one_of("auto", "always", "never"), "EVERSTEP_SHOW_PROGRESS")
    stores: StoreSettings = field(default_factory=StoreSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """What a launcher tells this one process.

    ``progress`` is the file a drill watches; ``launch`` is equal on all ranks and new with each launch; ``patience_s``
    is how many seconds ranks wait for each other. The rest are the variables of torchrun, Slurm and Open MPI.
    """

    attempt: int | None = _setting(None, _count, "EVERSTEP_ATTEMPT")
    progress: Path | None = None
    launch: str | None = _setting(None, _part, "EVERSTEP_LAUNCH")
    patience: int = _setting(600, _count, "EVERSTEP_PATIENCE")
    rank: int | None = _setting(None, _number, "RANK")
    world_size: int | None = _setting(None, _count, "WORLD_SIZE")
    local_rank: int | None = _setting(None, _number, "LOCAL_RANK")
    local_world_size: int | None = _setting(None, _count, "LOCAL_WORLD_SIZE")
    master_addr: str | None = _setting(None, _text, "MASTER_ADDR")
    master_port: int | None = _setting(None, _number, "MASTER_PORT")
    torchelastic_run_id: str | None = _setting(None, _text, "TORCHELASTIC_RUN_ID")
    torchelastic_restart_count: int | None = _setting(None, _number, "TORCHELASTIC_RESTART_COUNT")
    torchelastic_use_agent_store: bool = _setting(False, _flag, "TORCHELASTIC_USE_AGENT_STORE")
    slurm_procid: int | None = _setting(None, _number, "SLURM_PROCID")
    slurm_step_num_tasks: int | None = _setting(None, _count, "SLURM_STEP_NUM_TASKS")
    slurm_ntasks: int | None = _setting(None, _count, "SLURM_NTASKS")
    slurm_localid: int | None = _setting(None, _number, "SLURM_LOCALID")
    slurm_job_id: str | None = _setting(None, _part, "SLURM_JOB_ID")
    slurm_step_id: str | None = _setting(None, _part, "SLURM_STEP_ID")
    slurm_restart_count: int = _setting(0, _number, "SLURM_RESTART_COUNT")
    ompi_rank: int | None = _setting(None, _number, "OMPI_COMM_WORLD_RANK")
    ompi_size: int | None = _setting(None, _count, "OMPI_COMM_WORLD_SIZE")
    ompi_local_rank: int | None = _setting(None, _number, "OMPI_COMM_WORLD_LOCAL_RANK")


def settings(
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    **flags: object,
) -> Settings:
    """The settings in force: ``flags`` (None: not given), then variables, the project's and the user's file.

    ``folder`` is where ``everstep.toml`` or ``pyproject.toml`` is looked for, by default the working folder.
    Raises `UsageError` naming the file or variable, the key and the allowed form.
    """
    variables = os.environ if environ is None else environ
    tables = list(_tables(variables, Path() if folder is None else folder))
    stores = {
        "azure": _filled(AzureSettings, {}, variables, tables, "azure"),
        "s3": _filled(S3Settings, {}, variables, tables, "s3"),
        "gcs": _filled(GcsSettings, {}, variables, tables, "gcs"),
        "proxies": tuple(sorted(name for name in variables if name.upper() in _PROXIES and variables[name])),
    }
    wrong = sorted(set(flags) - {one.name for one in fields(Settings)})
    if wrong:
        raise UsageError(f"there is no setting {wrong[0]!r}", hint=_known(Settings), key=wrong[0])
    given = {name: value for name, value in flags.items() if value is not None}
    given["stores"] = _filled(StoreSettings, stores, variables, tables, "stores")
    return _filled(Settings, given, variables, tables, "")


def process_settings(environ: Mapping[str, str] | None = None) -> ProcessSettings:
    """What the launcher of this process told it, in ``EVERSTEP_*`` and in torchrun's, Slurm's and Open MPI's variables.

    Raises `UsageError` naming the variable and the allowed form.
    """
    variables = os.environ if environ is None else environ
    given: dict[str, object] = {}
    if variables.get("EVERSTEP_PROGRESS"):
        given["progress"] = Path(variables["EVERSTEP_PROGRESS"])
    told = _filled(ProcessSettings, given, variables, [], "")
    if told.rank is not None and told.world_size is not None and told.rank >= told.world_size:
        raise UsageError(
            f"RANK={told.rank} is not below WORLD_SIZE={told.world_size}",
            hint="let the launcher set both, or neither",
        )
    return told


def no_color(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the user asked for no colour, by the NO_COLOR convention or a dumb terminal."""
    variables = os.environ if environ is None else environ
    return bool(variables.get("NO_COLOR")) or variables.get("TERM") == "dumb"


def child_environment(changes: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child process is started with: this process's own environment, and ``changes``."""
    return {**(os.environ if environ is None else environ), **changes}


_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
_SECTIONS = frozenset({"azure", "s3", "gcs", "stores"})
_Table = tuple[str, Mapping[str, object], bool]
"""A file's name, its table, and whether it is the user's own, where secrets may stand."""


def _tables(variables: Mapping[str, str], folder: Path) -> Iterable[_Table]:
    own = folder / "everstep.toml"
    project = folder / "pyproject.toml"
    if own.is_file():
        yield str(own), _read(own), False
    elif project.is_file():
        tool = _read(project).get("tool", {})
        table = tool.get("everstep", {}) if isinstance(tool, Mapping) else {}
        if not isinstance(table, Mapping):
            raise _wrong(str(project), "tool.everstep", "a table")
        yield f"{project} [tool.everstep]", table, False
    base = variables.get("XDG_CONFIG_HOME") or (variables.get("HOME", "") and f"{variables['HOME']}/.config")
    user = Path(base) / "everstep" / "config.toml" if base else None
    if user and user.is_file():
        yield str(user), _read(user), True


def _read(path: Path) -> Mapping[str, object]:
    import tomllib  # noqa: PLC0415  # most working folders have no file of ours: start without the parser

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}", hint="correct the file", file=str(path)) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="correct its permissions") from None


def _filled(
    kind: type[_T],
    given: Mapping[str, object],
    variables: Mapping[str, str],
    tables: Iterable[_Table],
    section: str,
) -> _T:
    """One dataclass of settings, each field from the first place that has it."""
    reads = {one.name: one.metadata["read"] for one in fields(kind) if "read" in one.metadata}  # type: ignore[arg-type]
    found = {
        name: (where, path, value)
        for table in reversed(list(tables))
        for name, where, path, value in _entries(kind, table, section)
    }
    for one in fields(kind):  # type: ignore[arg-type]
        named = [name for name in one.metadata.get("variables", ()) if variables.get(name)]
        if named:
            found[one.name] = (named[0], "", variables[named[0]])
    found |= {name: (f"{name}=", "", value) for name, value in given.items()}
    values: dict[str, object] = {}
    for name, (where, path, value) in found.items():
        try:
            values[name] = reads[name](value) if name in reads else value
        except ValueError as error:
            raise _wrong(where, path, str(error)) from None
    if any(one.name == "sources" for one in fields(kind)):  # type: ignore[arg-type]
        values["sources"] = {name: where for name, (where, _, _) in found.items()}
    return kind(**values)


def _entries(kind: type[object], table: _Table, section: str) -> Iterable[tuple[str, str, str, object]]:
    """Each entry of a file's table: name, file, dotted path, value; unknown names and misplaced secrets refused."""
    where, whole, private = table
    entries = whole.get(section, {}) if section else whole
    if not isinstance(entries, Mapping):
        raise _wrong(where, section, "a table")
    known = {one.name: one.metadata for one in fields(kind) if "read" in one.metadata}  # type: ignore[arg-type]
    for key, value in entries.items():
        path = f"{section}.{key}" if section else key
        if not section and key in _SECTIONS:
            continue
        if key not in known:
            raise UsageError(
                f"{where}: there is no setting {path!r}", hint=_known(kind), file=where, key=path
            )
        if known[key]["read"] is _secret and not private:
            raise UsageError(
                f"{where}: {path!r} is a secret, and this file is shared",
                hint=f"set {known[key]['variables'][0]}, or put it into the user's config.toml",
                file=where,
                key=path,
            )
        yield key, where, path, value


def _known(kind: type[object]) -> str:
    names = sorted(one.name for one in fields(kind) if "read" in one.metadata)  # type: ignore[arg-type]
    return f"known settings: {', '.join(names)}"


def _wrong(where: str, key: str, allowed: str) -> UsageError:
    """The value itself is not repeated: it may be a secret in the wrong place."""
    named = f"{where}: {key}" if key else where
    return UsageError(
        f"{named} has a value that cannot be used", hint=f"it takes {allowed}", file=where, key=key
    )
