import pytest

from watcher.formatting.text import counted, grouped


@pytest.mark.parametrize(
    ("number", "what", "text"),
    [
        (0, "change", "0 changes"),
        (1, "change", "1 change"),
        (1000, "change", "1000 changes"),
        (1, "DATA LOSS", "1 DATA LOSS"),
        (2, "DATA LOSS", "2 DATA LOSSES"),
    ],
)
def test_a_number_of_things(number: int, what: str, text: str) -> None:
    assert counted(number, what) == text


def test_digits_in_groups() -> None:
    assert grouped(1000, "shard") == "1,000 shards"
