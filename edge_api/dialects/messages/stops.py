"""Finds which of a client's stop strings ended an answer. Engines do not say; asked to leave the string in the text,
they end the text with it."""

from edge_api.dialects.upstream_chat import Delta


class StopWatch:
    """Holds back what may be the beginning of a stop string, until more of the text, or its end, has come."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held, self._is_reasoning = "", False
        self.found: str | None = None

    def take(self, delta: Delta) -> list[Delta]:
        """The same, in order, less what is held back."""
        if not self._stops:
            return [delta]
        out: list[Delta] = []
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self._say(reasoning, True, out)
        if delta.content:
            self._say(delta.content, False, out)
        if delta.tool_calls:
            self._release(out)
            out.append(Delta(tool_calls=delta.tool_calls))
        return out

    def finish(self, finish_reason: str | None) -> list[Delta]:
        """What is still held, without the stop string that ended it."""
        out: list[Delta] = []
        if finish_reason == "stop":
            self.found = next((stop for stop in self._stops if self._held.endswith(stop)), None)
            self._held = self._held.removesuffix(self.found or "")
        self._release(out)
        return out

    def _say(self, text: str, is_reasoning: bool, out: list[Delta]) -> None:
        if is_reasoning is not self._is_reasoning:
            self._release(out)
            self._is_reasoning = is_reasoning
        text = self._held + text
        start = min(_start_of(stop, text) for stop in self._stops)
        self._held = text[:start]
        self._release(out)
        self._held = text[start:]

    def _release(self, out: list[Delta]) -> None:
        if self._held:
            out.append(Delta(reasoning_content=self._held) if self._is_reasoning else Delta(content=self._held))
            self._held = ""


def _start_of(stop: str, text: str) -> int:
    """Where in the text its end begins that is the stop string, or could become it."""
    for length in range(min(len(stop), len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return len(text) - length
    return len(text)
