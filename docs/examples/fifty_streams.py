"""Fifty parallel streams through the unmodified OpenAI SDK: `.venv/bin/python docs/examples/fifty_streams.py`.

Reads `.meridian/local.json` (or `$MERIDIAN_STATE/local.json`) for the address, the key and the model. Exits with 1 if a
stream broke or came short.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from openai import AsyncOpenAI

STREAMS = 50
WORDS = 600


async def words_of(client: AsyncOpenAI, model: str, number: int) -> int:
    """How many words one stream brought.

    Each stream asks something else: equal beginnings count as one session and would all go to one datacenter.
    """
    stream = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": f"Tell me story {number}"}], max_tokens=WORDS, stream=True)
    text = "".join([event.choices[0].delta.content or "" async for event in stream])
    return len(text.split())


async def main() -> int:
    """Runs all streams at once and says how they ended."""
    local = json.loads((Path(os.environ.get("MERIDIAN_STATE", ".meridian")) / "local.json").read_text())
    async with AsyncOpenAI(base_url=local["edge_url"], api_key=local["api_key"], max_retries=0) as client:
        streams = [words_of(client, local["model"], number) for number in range(STREAMS)]
        ended = await asyncio.gather(*streams, return_exceptions=True)
    whole = sum(words == WORDS for words in ended)
    print(f"{whole} of {STREAMS} streams came whole, {WORDS} words each")
    for fault in {repr(words) for words in ended if words != WORDS}:
        print(f"  {fault}")
    return 0 if whole == STREAMS else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
