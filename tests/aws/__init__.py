"""A fake AWS on loopback, as strict as the real one about TLS, signatures, sessions and clocks.

`fake` is the server; what it offers beside DynamoDB's streams (which the simulator answers) is in
`accounts`: STS, the endpoints of containers and instances. Tests compare with plain boto3.
"""

from .fake import FakeAWS, Seen

__all__ = ["FakeAWS", "Seen"]
