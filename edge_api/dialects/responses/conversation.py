"""Puts a conversation's items together to chat's messages."""

from typing import Literal

from edge_api import errors
from edge_api.dialects import upstream_chat as chat
from edge_api.dialects.responses.shapes import InputImage, Item, Part, Refused
from edge_api.dialects.strict import missing, unsupported
from edge_api.errors import Refusal

Role = Literal["user", "assistant", "system", "developer"]
STORED = "item_reference"


class Conversation:
    """What an assistant thought, said and called in a row is one message of chat. Chat templates know one kind of
    instructions, so a developer's are the system's; those that come first are one message."""

    def __init__(self, instructions: str | None) -> None:
        self._messages: list[chat.Message] = []
        self._instructions = [instructions] if instructions else []
        self._thought: list[str] = []
        self._said: list[str] = []
        self._calls: list[chat.Call] = []
        self._shown: list[chat.TextPart | chat.ImagePart] = []  # images in results: they follow the last result

    def messages(self) -> list[chat.Message]:
        """All of it."""
        self._close_turn()
        self._show()
        first = [chat.Message("system", "\n".join(self._instructions))] if self._instructions else []
        return first + self._messages

    def add(self, item: Item, path: str) -> None:
        """Raises: Refusal, naming what of the item cannot be served."""
        match item.type:
            case "message":
                self._message(item, path)
            case "reasoning":
                self._show()
                thoughts = item.content if isinstance(item.content, list) and item.content else item.summary
                self._thought += [part.text for part in thoughts or () if not isinstance(part, InputImage | Refused)]
            case "function_call":
                self._show()
                self._calls.append(_call(item, path))
            case "function_call_output":
                self._result(item, path)
            case _:
                why = "nothing is stored here" if item.type == STORED else "only messages, reasoning and functions are"
                raise unsupported(f"{path}.type", f"'{item.type}' is not supported; {why}")

    def say(self, role: Role, content: chat.Content) -> None:
        """A message of somebody's."""
        if role == "assistant":
            self._show()
            self._said.append(content if isinstance(content, str) else _texts(content))
            return
        self._close_turn()
        if role == "user":
            self._messages.append(chat.Message("user", chat.content_of([*self._shown, *_as_parts(content)])))
            self._shown.clear()
            return
        text = content if isinstance(content, str) else _texts(content)
        if self._messages or self._shown:
            self._show()
            self._messages.append(chat.Message("system", text))
        else:
            self._instructions.append(text)

    def _message(self, item: Item, path: str) -> None:
        if item.role is None:
            raise missing(f"{path}.role")
        if item.content is None:
            raise missing(f"{path}.content")
        if isinstance(item.content, str):
            self.say(item.role, item.content)
        else:
            self.say(item.role, chat.content_of(_parts(item.content, f"{path}.content")))

    def _result(self, item: Item, path: str) -> None:
        if not item.call_id:
            raise missing(f"{path}.call_id")
        if item.output is None:
            raise missing(f"{path}.output")
        self._close_turn()
        parts = _as_parts(item.output) if isinstance(item.output, str) else _parts(item.output, f"{path}.output")
        self._messages.append(chat.Message("tool", _texts(parts), tool_call_id=item.call_id))
        self._shown += (part for part in parts if isinstance(part, chat.ImagePart))

    def _close_turn(self) -> None:
        if self._thought or self._said or self._calls:
            self._messages.append(chat.assistant(self._thought, self._said, self._calls))
            self._thought, self._said, self._calls = [], [], []

    def _show(self) -> None:
        if self._shown:
            self._messages.append(chat.Message("user", chat.content_of(self._shown)))
            self._shown = []


def _call(item: Item, path: str) -> chat.Call:
    for name, value in (("call_id", item.call_id), ("name", item.name), ("arguments", item.arguments)):
        if value is None:
            raise missing(f"{path}.{name}")
    return chat.Call(item.call_id or "", chat.CalledFunction(item.name or "", item.arguments or ""))


def _parts(parts: list[Part], path: str) -> list[chat.TextPart | chat.ImagePart]:
    return [_part(part, f"{path}[{at}]") for at, part in enumerate(parts)]


def _part(part: Part, path: str) -> chat.TextPart | chat.ImagePart:
    if isinstance(part, Refused):
        return chat.TextPart(part.refusal)
    if not isinstance(part, InputImage):
        return chat.TextPart(part.text)
    if not part.image_url:
        raise Refusal(errors.MISSING_PARAMETER, f"{path}.image_url: files are not stored here; send the image itself",
                      f"{path}.image_url")
    return chat.ImagePart(chat.ImageUrl(part.image_url, chat.given(part.detail)))


def _as_parts(content: chat.Content) -> list[chat.TextPart | chat.ImagePart]:
    return [chat.TextPart(content)] if isinstance(content, str) else content


def _texts(parts: list[chat.TextPart | chat.ImagePart]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, chat.TextPart))
