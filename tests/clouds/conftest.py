"""Each cloud in turn, reached by the variables of this process."""

from collections.abc import Iterator

import pytest

from tests.clouds.worlds import Cloud, open_cloud


@pytest.fixture(params=["azure", "s3", "gcs"])
def cloud(request, monkeypatch) -> Iterator[Cloud]:
    """An empty place; its variables are set in this process."""
    for made in open_cloud(request.param, request):
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def s3(request, monkeypatch) -> Iterator[Cloud]:
    """S3 alone, where one cloud stands for all."""
    for made in open_cloud("s3", request):
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made
