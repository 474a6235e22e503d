# ruff: noqa: RUF009  (setting is a field, with its variables beside its default)
"""Every setting: its name, its default, what reads it, and the variables that set it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from everstep.config.values import (
    Secret,
    count,
    flag,
    number,
    one_of,
    part,
    rhythm,
    seconds,
    secret,
    setting,
    size,
    text,
)

__all__ = [
    "AzureSettings",
    "GcsSettings",
    "ProcessSettings",
    "S3Settings",
    "Settings",
    "StoreSettings",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """How to reach Azure Blob storage. ``sources`` names what was set, for errors."""

    account: str | None = setting(None, text, "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
    key: Secret | None = setting(
        None, secret, "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"
    )
    sas: Secret | None = setting(None, secret, "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
    connection_string: Secret | None = setting(None, secret, "AZURE_STORAGE_CONNECTION_STRING")
    token: Secret | None = setting(None, secret, "AZURE_STORAGE_TOKEN")
    endpoint: str | None = setting(
        None, text, "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_ENDPOINT"
    )
    client_id: str | None = setting(None, text, "AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID")
    client_secret: Secret | None = setting(None, secret, "AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET")
    tenant_id: str | None = setting(None, text, "AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID")
    federated_token_file: str | None = setting(None, text, "AZURE_FEDERATED_TOKEN_FILE")
    authority_host: str | None = setting(None, text, "AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST")
    identity_endpoint: str | None = setting(
        None, text, "AZURE_MSI_ENDPOINT", "IDENTITY_ENDPOINT", "MSI_ENDPOINT"
    )
    use_azure_cli: bool = setting(False, flag, "AZURE_USE_AZURE_CLI")
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How to reach S3 and stores that speak its protocol."""

    access_key_id: str | None = setting(None, text, "AWS_ACCESS_KEY_ID")
    secret_access_key: Secret | None = setting(None, secret, "AWS_SECRET_ACCESS_KEY")
    session_token: Secret | None = setting(None, secret, "AWS_SESSION_TOKEN")
    region: str | None = setting(None, text, "AWS_REGION", "AWS_DEFAULT_REGION")
    endpoint: str | None = setting(None, text, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    profile: str | None = setting(None, text, "AWS_PROFILE", "AWS_DEFAULT_PROFILE")
    credentials_file: str | None = setting(None, text, "AWS_SHARED_CREDENTIALS_FILE")
    config_file: str | None = setting(None, text, "AWS_CONFIG_FILE")
    web_identity_token_file: str | None = setting(None, text, "AWS_WEB_IDENTITY_TOKEN_FILE")
    role_arn: str | None = setting(None, text, "AWS_ROLE_ARN")
    role_session_name: str | None = setting(None, text, "AWS_ROLE_SESSION_NAME")
    container_relative_uri: str | None = setting(None, text, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    container_full_uri: str | None = setting(None, text, "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    container_token_file: str | None = setting(None, text, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    virtual_hosted: bool | None = setting(None, flag, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST")
    ca_bundle: str | None = setting(None, text, "AWS_CA_BUNDLE")
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsSettings:
    """How to reach Google Cloud Storage."""

    application_credentials: str | None = setting(
        None, text, "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"
    )
    service_account_key: Secret | None = setting(None, secret, "GOOGLE_SERVICE_ACCOUNT_KEY")
    token: Secret | None = setting(None, secret, "GOOGLE_OAUTH_ACCESS_TOKEN")
    endpoint: str | None = setting(None, text, "STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL")
    anonymous: bool = setting(False, flag, "GOOGLE_SKIP_SIGNATURE")
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
    slowest: int = setting(256 * 2**10, size, "EVERSTEP_SLOWEST")
    proxies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a user can set. ``budget_bytes`` bounds the memory of reads in flight.

    ``watch`` is how many seconds a training waits between two looks for `everstep save` (0: it does not look), and
    ``save_signal`` the signal that asks it for a save.
    """

    store: str | None = setting(None, text, "EVERSTEP_STORE")
    run: str | None = setting(None, text, "EVERSTEP_RUN")
    on_corrupt: str = setting("previous", one_of("previous", "fail"), "EVERSTEP_ON_CORRUPT")
    workers: int = setting(4, count, "EVERSTEP_WORKERS")
    budget_bytes: int = setting(256 * 2**20, size, "EVERSTEP_BUDGET_BYTES")
    every: str | None = setting(None, text, "EVERSTEP_EVERY")
    keep: str | None = setting(None, text, "EVERSTEP_KEEP")
    grace: float = setting(0.0, seconds, "EVERSTEP_GRACE")
    show_progress: str = setting("auto", one_of("auto", "always", "never"), "EVERSTEP_SHOW_PROGRESS")
    watch: float = setting(15.0, rhythm, "EVERSTEP_WATCH")
    save_signal: str = setting(
        "SIGUSR2", one_of("SIGUSR2", "SIGUSR1", "SIGHUP", "none"), "EVERSTEP_SAVE_SIGNAL"
    )
    stores: StoreSettings = field(default_factory=StoreSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """What a launcher tells this one process.

    ``progress`` is the file a drill watches; ``launch`` is equal on all ranks and new with each launch; ``patience_s``
    is how many seconds ranks wait for each other. The rest are the variables of torchrun, Slurm and Open MPI.
    """

    attempt: int | None = setting(None, count, "EVERSTEP_ATTEMPT")
    progress: Path | None = None
    launch: str | None = setting(None, part, "EVERSTEP_LAUNCH")
    patience: int = setting(600, count, "EVERSTEP_PATIENCE")
    rank: int | None = setting(None, number, "RANK")
    world_size: int | None = setting(None, count, "WORLD_SIZE")
    local_rank: int | None = setting(None, number, "LOCAL_RANK")
    local_world_size: int | None = setting(None, count, "LOCAL_WORLD_SIZE")
    master_addr: str | None = setting(None, text, "MASTER_ADDR")
    master_port: int | None = setting(None, number, "MASTER_PORT")
    torchelastic_run_id: str | None = setting(None, text, "TORCHELASTIC_RUN_ID")
    torchelastic_restart_count: int | None = setting(None, number, "TORCHELASTIC_RESTART_COUNT")
    torchelastic_use_agent_store: bool = setting(False, flag, "TORCHELASTIC_USE_AGENT_STORE")
    slurm_procid: int | None = setting(None, number, "SLURM_PROCID")
    slurm_step_num_tasks: int | None = setting(None, count, "SLURM_STEP_NUM_TASKS")
    slurm_ntasks: int | None = setting(None, count, "SLURM_NTASKS")
    slurm_localid: int | None = setting(None, number, "SLURM_LOCALID")
    slurm_job_id: str | None = setting(None, part, "SLURM_JOB_ID")
    slurm_step_id: str | None = setting(None, part, "SLURM_STEP_ID")
    slurm_restart_count: int = setting(0, number, "SLURM_RESTART_COUNT")
    ompi_rank: int | None = setting(None, number, "OMPI_COMM_WORLD_RANK")
    ompi_size: int | None = setting(None, count, "OMPI_COMM_WORLD_SIZE")
    ompi_local_rank: int | None = setting(None, number, "OMPI_COMM_WORLD_LOCAL_RANK")
