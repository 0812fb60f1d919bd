"""How a service names its tables, streams and shards: AWS, or ScyllaDB's Alternator.

https://github.com/scylladb/scylladb/blob/master/alternator/streams.cc
"""

import uuid

REGION = "us-east-1"
ACCOUNT = "123456789012"


class AWS:
    """As Amazon's own does."""

    def table(self, name: str, account: str) -> str:
        return f"arn:aws:dynamodb:{REGION}:{account}:table/{name}"

    def stream(self, table: str, label: str) -> str:
        return f"{table}/stream/{label}"

    def shard(self, milliseconds: int, bits: int) -> str:
        return f"shardId-{milliseconds:020d}-{bits:08x}"


class Alternator(AWS):
    """Streams are `S` and a UUID, shards `H` and two hexadecimal numbers."""

    def table(self, name: str, account: str) -> str:
        return f"arn:scylla:alternator:alternator_{name}:scylla:table/{name}"

    def stream(self, table: str, label: str) -> str:
        return f"S{uuid.uuid5(uuid.NAMESPACE_URL, table + label)}"

    def shard(self, milliseconds: int, bits: int) -> str:
        return f"H {milliseconds:x}:{bits:032x}"


class AlternatorForKCL(Alternator):
    """Its streams' ARNs since 2026: as AWS's, of a region and an account that mean nothing."""

    def stream(self, table: str, label: str) -> str:
        keyspace, name = table.split(":")[3], table.rpartition("/")[2]
        return f"arn:aws:dynamodb:{REGION}:797456418907:table/{keyspace}@{name}/stream/{label}"


NAMINGS = {"aws": AWS(), "alternator": Alternator(), "alternator-kcl": AlternatorForKCL()}
