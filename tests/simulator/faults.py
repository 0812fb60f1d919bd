"""What shall go wrong, how often, and which of the service's habits apply."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Faults:
    """All settings; the defaults are a healthy service as documented by AWS.

    A rate is the share of requests hit, 0 to 1. Times are in seconds.
    """

    # Requests that fail. `operations` limits these to some calls (empty: all).
    operations: tuple[str, ...] = ()
    throttle_rate: float = 0.0
    error_rate: float = 0.0  # 500 and 503, some with a body that is not JSON
    odd_rate: float = 0.0  # what a proxy answers, or nobody knows: errors.ODD
    reset_rate: float = 0.0  # half before the answer, half in the middle of it
    truncate_rate: float = 0.0  # closes in the middle of the promised body
    invalid_json_rate: float = 0.0  # a whole answer whose JSON stops short
    hang_rate: float = 0.0  # never answers
    latency: float = 0.0
    latency_jitter: float = 0.0  # up to that much more, at random

    # Pages.
    empty_page_rate: float = 0.0  # no records though some follow
    short_page_rate: float = 0.0  # a random number of them
    back_rate: float = 0.0  # an iterator that goes back: records that came before come again
    shuffled_rate: float = 0.0  # a page's records in any order
    closed_empty: int = 0  # so many reads of a closed shard bring nothing before its records do
    max_records: int = 1000
    last_page_empty: bool = False  # a closed shard ends with an empty page, not with its records

    # Listings.
    listing_lag: float = 0.0  # a new child is missing that long
    closing_lag: float = 0.0  # a closed shard looks open that long (inf: for ever)
    lag_jitter: bool = False  # each shard has its own share of these lags
    children_first: bool = False  # every second generation is listed at once: before its parent
    child_filter: bool = True  # ShardFilter CHILD_SHARDS honoured (DynamoDB Local ignores it)
    describe_page: int = 100
    endless_listing: bool = False  # behind the last page there is always another
    list_page: int = 100
    table_arns: str = "honoured"  # in DescribeTable: stripped to the name, refused (DynamoDB Local)

    # CheckpointStorage and time.
    iterator_seconds: float = 900.0
    at_timestamp: bool = True
    retention: float = 24 * 3600.0
    granularity: float = 1.0  # of ApproximateCreationDateTime; 60 like DynamoDB Local; 0: exact
    ahead_rate: float = 0.0  # records stamped an hour ahead
    date_skew: float = 0.0  # how far the Date header is off, …
    date_skew_rate: float = 1.0  # … in this share of the answers
    ending_past_last: bool = True  # EndingSequenceNumber is greater than the last record's

    # Who may call, and how often (0: no limit).
    auth_error: str = ""  # every call answers this: AccessDeniedException, ExpiredTokenException…
    auth_operations: tuple[str, ...] = ()  # … or only these calls
    expired_access_keys: tuple[str, ...] = ()  # calls signed with these: ExpiredTokenException
    shard_reads_per_second: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_rate") and not 0 <= value <= 1:
                raise ValueError(f"{field.name} is {value}, but a rate is 0 to 1")
