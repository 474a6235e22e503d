"""Azure Blob storage: which account, at which endpoint, signed by what."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from everstep.config import AzureSettings
from everstep.errors import UsageError
from everstep.store.endpoints import check_endpoint
from everstep.store.target import Target, parse_place

__all__ = ["azure_target", "parse_connection_string"]

_HINT = "set AZURE_STORAGE_ACCOUNT_NAME, or AZURE_STORAGE_CONNECTION_STRING"
# The account and key every Azure emulator has; published, no secret.
_EMULATOR = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;"
    "BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1"
)


def parse_connection_string(text: str) -> Mapping[str, str]:
    """The parts of a connection string by their lower-case names, the emulator's short form expanded.

    Raises `UsageError` naming the part, never its value.
    """
    parts: dict[str, str] = {}
    for number, part in enumerate(filter(None, text.strip().strip('"').split(";")), 1):
        name, equals, value = part.partition("=")
        if not equals or not name.strip().isalnum():
            raise UsageError(
                f"part {number} of the Azure connection string is not Name=value",
                hint="copy it whole from the portal, or from `az storage account show-connection-string`",
            )
        parts[name.strip().lower()] = value.strip()
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        return parse_connection_string(_EMULATOR)
    return parts


def azure_target(url: str, settings: AzureSettings) -> Target:
    """The container of ``az://container/prefix``.

    The connection string goes before an account key, then SAS, token, service principal, workload identity,
    the Azure CLI when asked for, and the machine's managed identity. Raises `UsageError`, `UnsuitableStore`.
    """
    place = parse_place(url)
    source = settings.sources
    account, address, where = (
        settings.account,
        settings.endpoint,
        source.get("endpoint", "the Azure endpoint"),
    )
    config, credentials = _credentials(settings)
    if settings.connection_string is not None:
        where = source.get("connection_string", "the connection string")
        parts = parse_connection_string(settings.connection_string.reveal())
        account = parts.get("accountname") or account
        address = parts.get("blobendpoint") or settings.endpoint
        if not address and account:
            protocol = parts.get("defaultendpointsprotocol", "https")
            address = f"{protocol}://{account}.blob.{parts.get('endpointsuffix', 'core.windows.net')}"
        if "accountkey" in parts:
            config, credentials = {"credential_type": "access_key", "account_key": parts["accountkey"]}, where
        elif "sharedaccesssignature" in parts:
            config, credentials = _sas(parts["sharedaccesssignature"], where)
    if not address and account:
        address = f"https://{account}.blob.core.windows.net"
    if not address:
        raise UsageError(f"no Azure storage account is named for {url}", hint=_HINT)
    endpoint = check_endpoint(address, where)
    if not account:  # https://ACCOUNT.blob.core.windows.net, or an emulator's http://host/ACCOUNT
        account = urlsplit(address).path.strip("/") or endpoint.host.partition(".")[0]
    return Target(
        kind="azure",
        url=url,
        place=place,
        endpoint=endpoint,
        credentials=credentials,
        fixed=config["credential_type"] in {"access_key", "sas_token", "bearer_token"},
        config={"account_name": account, "endpoint": endpoint.url, "use_emulator": False, **config},
    )


def _credentials(  # noqa: PLR0911  # one return for each way to sign
    settings: AzureSettings,
) -> tuple[Mapping[str, object], str]:
    """What signs requests when no connection string does, and where it comes from."""
    source = settings.sources
    if settings.key is not None:
        key = {"credential_type": "access_key", "account_key": settings.key.reveal()}
        return key, source.get("key", "the account key")
    if settings.sas is not None:
        return _sas(settings.sas.reveal(), source.get("sas", "the SAS token"))
    if settings.token is not None:
        token = {"credential_type": "bearer_token", "token": settings.token.reveal()}
        return token, source.get("token", "the bearer token")
    given = {
        "client_id": settings.client_id,
        "tenant_id": settings.tenant_id,
        "authority_host": settings.authority_host,
    }
    config: dict[str, object] = {name: value for name, value in given.items() if value}
    if settings.client_secret is not None:
        config |= {"credential_type": "client_secret", "client_secret": settings.client_secret.reveal()}
        return config, "service principal of AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_CLIENT_SECRET"
    if settings.federated_token_file:
        config |= {
            "credential_type": "workload_identity",
            "federated_token_file": settings.federated_token_file,
        }
        return config, "workload identity of AZURE_FEDERATED_TOKEN_FILE"
    if settings.use_azure_cli:
        return config | {"credential_type": "azure_cli"}, "the Azure CLI's login"
    config["credential_type"] = "managed_identity"
    if settings.identity_endpoint:
        config["msi_endpoint"] = settings.identity_endpoint
    return config, "no key, SAS or token is set, so this machine's managed identity"


def _sas(text: str, source: str) -> tuple[Mapping[str, object], str]:
    sas = text.lstrip("?")
    fields = parse_qs(sas)
    if "sig" not in fields:
        raise UsageError(f"{source} is not a shared access signature: it has no sig=", hint="copy it whole")
    ends = fields.get("se", ["at a stored policy's time"])[0]
    return {"credential_type": "sas_token", "sas_key": sas}, f"{source} (ends {ends})"
