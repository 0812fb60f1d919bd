"""An item as a model of the user's own: one of pydantic's, or what else has `model_validate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, overload

from boto3.dynamodb.types import Binary


class _HasModelValidate(Protocol):
    @classmethod
    def model_validate(cls, obj: Any) -> Any:
        """Make one of plain values."""


_Model = TypeVar("_Model", bound=_HasModelValidate)


@overload
def as_model(item: None, model: type[_Model]) -> None: ...


@overload
def as_model(item: Mapping[str, Any], model: type[_Model]) -> _Model: ...


def as_model(item: Mapping[str, Any] | None, model: type[_Model]) -> _Model | None:
    """An item (`record.new`, `record.old`, `record.key`) as a model; None for None.

    Numbers are given to it as Decimal, binary values as bytes. Raises what the model does where
    the item is none of its kind.
    """
    made: _Model | None = None if item is None else model.model_validate(_plain(item))
    return made


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _plain(part) for name, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case set():
            return {_plain(part) for part in value}
        case Binary():
            return bytes(value)  # type: ignore[call-overload] # the stubs do not know its __bytes__
        case _:
            return value
