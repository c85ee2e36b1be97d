"""The one panel that a running stack shows: where it is, and lines that can be pasted as they are.

No borders at the sides, no indentation, nothing wrapped by us: a selection in the terminal is what was written.
"""

from dataclasses import dataclass

from infra.local.shape import MODEL, TEAM, Shape

RULE = "─" * 78


@dataclass(frozen=True)
class PanelFacts:
    """What the panel says. `command` is how the command line is called here, `python` what has the OpenAI SDK."""

    shape: Shape
    api_key: str
    command: str
    python: str
    local_file: str
    started_in_s: float


def render(facts: PanelFacts) -> str:
    """The panel's text; no line of it is longer than 80 columns unless a path is."""
    shape, run = facts.shape, facts.command
    edge = f"{shape.edge_urls[0]}/v1"
    more = "".join(f"\n                    {url}/v1" for url in shape.edge_urls[1:])
    where = ", ".join(shape.datacenters)
    drain = shape.datacenters[0]
    return f"""{RULE}
Meridian is up after {facts.started_in_s:.1f} s: {where}. Ctrl-C stops all of it.

Edge (OpenAI API)   {edge}{more}
Edge (Anthropic)    {shape.edge_urls[0]}, with the same key
Model               {MODEL}
API key             {facts.api_key}
Dashboard API       {shape.control_plane_urls[0]}/api/v1/teams/{TEAM}/usage
                    (header "Authorization: Bearer" and the API key)

The engine is simulated: its words mean nothing, on purpose, and it calls no
tools and keeps to no schema. Everything else is real. A real model
(--engine vllm) is not part of this release yet.

With curl:

{curl(edge, facts.api_key)}

With the OpenAI SDK, in {facts.python}:

{snippet(edge, facts.api_key)}

Try next, in a second terminal:

{run} chat "Tell me a long story" --max-tokens 2000
{run} drain {drain} --reason test --wait     # meanwhile: no stream breaks
{run} status
{run} usage     # the start itself sent one request through each edge
{run} restore {drain} --reason test --wait

All of this as JSON: {facts.local_file}
{RULE}"""


def curl(edge: str, api_key: str) -> str:
    """A streamed completion with curl, in one command."""
    return f"""curl -N {edge}/chat/completions \\
--oauth2-bearer {api_key} \\
-H "Content-Type: application/json" \\
-d '{{"model": "{MODEL}", "stream": true, "max_tokens": 8,
"messages": [{{"role": "user", "content": "hello"}}]}}'"""


def snippet(edge: str, api_key: str) -> str:
    """The same with the unmodified OpenAI SDK."""
    return f"""from openai import OpenAI
client = OpenAI(base_url="{edge}",
    api_key="{api_key}")
question = [{{"role": "user", "content": "hello"}}]
for event in client.chat.completions.create(
        model="{MODEL}", messages=question, max_tokens=40, stream=True):
    for choice in event.choices:
        print(choice.delta.content or "", end="", flush=True)
print()"""
