"""Real parts for the tests: absent, they skip a test on a laptop and fail it in CI."""

from collections.abc import Iterator

import pytest

from tests.simulator import Simulator
from tests.support.dynamodb_local import DynamoDBLocal, MissingPart


def start_dynamodb_local() -> DynamoDBLocal:
    try:
        return DynamoDBLocal().start()
    except MissingPart as missing:
        pytest.skip(str(missing))  # in CI that is a failure: tests/conftest.py


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[DynamoDBLocal]:
    """One server for every test that brings its own table and moves no time."""
    with start_dynamodb_local() as server:
        yield server


@pytest.fixture
def fresh_dynamodb_local() -> Iterator[DynamoDBLocal]:
    """A server of the test's own, for rotations and ageing, which hit every stream of a server."""
    with start_dynamodb_local() as server:
        yield server


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """The table `orders`, with as many shards as the module's SHARDS says."""
    with Simulator(table="orders", shards=getattr(request.module, "SHARDS", 1), seed=5) as made:
        yield made
