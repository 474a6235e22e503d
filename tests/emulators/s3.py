"""Two servers that speak S3: moto, which keeps create conditions, and s3rver, which ignores them."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["S3Server", "careless_at", "moto_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running S3 server; addresses name the bucket in the path."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"

    def bucket(self) -> str:
        """Make a new, empty bucket; its name."""
        name = f"test-{secrets.token_hex(8)}"
        with self.client() as client:
            client.create_bucket(Bucket=name)
        return name

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Amazon's own client."""
        import boto3  # slow to load, and few tests need it

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )
        try:
            yield client
        finally:
            client.close()

    def set_class(self, bucket: str, key: str, storage_class: str) -> None:
        """Move an object to another storage class, as a lifecycle rule does: same key, same bytes."""
        with self.client() as client:
            client.copy_object(
                Bucket=bucket,
                Key=key,
                CopySource={"Bucket": bucket, "Key": key},
                StorageClass=storage_class,
                MetadataDirective="COPY",
            )

    def restore(self, bucket: str, key: str) -> None:
        """Bring an archived object back, as `aws s3api restore-object` asks for it."""
        request = {"Days": 7, "GlacierJobParameters": {"Tier": "Standard"}}
        with self.client() as client:
            client.restore_object(Bucket=bucket, Key=key, RestoreRequest=request)


def moto_at(port: int) -> S3Server:
    """The moto that listens on ``port``; it takes any key."""
    return S3Server(endpoint=f"http://127.0.0.1:{port}", access_key="testing", secret_key="testing")


def careless_at(port: int) -> S3Server:
    """The s3rver that listens on ``port``; it knows one key."""
    return S3Server(endpoint=f"http://127.0.0.1:{port}", access_key="S3RVER", secret_key="S3RVER")
