"""Compares what a watch delivered with what was written."""

from collections.abc import Iterable
from typing import NamedTuple

from .model import Written


class Verdict(NamedTuple):
    """Sequence numbers of the records that broke a promise; all empty is good."""

    lost: list[str]
    repeated: list[str]
    out_of_order: list[str]  # came after a later change of the same item
    unknown: list[str]  # never written


def judge(written: Iterable[Written], delivered: Iterable[str]) -> Verdict:
    """The verdict on sequence numbers in order of delivery; `written` may be a part (`[n:]`)."""
    truth = {record.sequence_number: record.key for record in written}
    verdict = Verdict([], [], [], [])
    newest: dict[str, int] = {}
    seen: set[str] = set()
    for number in delivered:
        key = truth.get(number)
        if key is None:
            verdict.unknown.append(number)
        elif number in seen:
            verdict.repeated.append(number)
        else:
            seen.add(number)
            if int(number) < newest.get(key, 0):
                verdict.out_of_order.append(number)
            newest[key] = max(newest.get(key, 0), int(number))
    verdict.lost.extend(number for number in truth if number not in seen)
    return verdict
