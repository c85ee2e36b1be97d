"""A signed document: the exact text that was signed, whose key it was, and what it was signed for.

The purpose is part of what is signed, so that a document of one kind can never be taken for one of another.
"""

import base64
from collections.abc import Iterable
from typing import Self, TypeVar

from pydantic import ValidationError

from control_plane.contracts.signing import SigningKey, VerifyKey
from control_plane.contracts.wire import Wire

Document = TypeVar("Document", bound=Wire)


class SealBroken(Exception):
    """The document must not be believed; the message says why."""


class Sealed(Wire):
    """A document on the wire and on disk."""

    key_id: str
    signature: str
    body: str

    @classmethod
    def sealed(cls, purpose: str, document: Wire, key: SigningKey) -> Self:
        """`document`, signed for `purpose`."""
        body = document.model_dump_json()
        signature = base64.urlsafe_b64encode(key.sign(_message(purpose, body))).decode()
        return cls(key_id=key.public.key_id, signature=signature, body=body)

    def opened(self, purpose: str, kind: type[Document], keys: Iterable[VerifyKey]) -> Document:
        """The document, once its signature by one of `keys` and its shape are right.

        Raises:
            SealBroken: unknown key, wrong signature or wrong shape.
        """
        key = next((key for key in keys if key.key_id == self.key_id), None)
        if key is None:
            raise SealBroken(f"it is signed with a key that is not known here, {self.key_id[:64]}")
        try:
            signature = base64.urlsafe_b64decode(self.signature)
        except ValueError as error:
            raise SealBroken("the signature is no base64") from error
        if not key.verify(_message(purpose, self.body), signature):
            raise SealBroken("the signature does not fit")
        try:
            return kind.model_validate_json(self.body)
        except ValidationError as error:
            raise SealBroken(f"it is malformed: {error.error_count()} faults") from error


def _message(purpose: str, body: str) -> bytes:
    return f"{purpose}\n{body}".encode()
