"""What counts for and against a datacenter: OpenRouter's inclusion rules, in one place.

401, 402, 404, every 5xx, an answer that broke off and one that ended with an error count against; 400, 403, 413 and 429
do not count, nor do the other ways to refuse a request for what it is. What a client left before its answer began tells
nothing. Each attempt counts where it was sent to: an overload (503, 529) is the datacenter's, though clients are told
429. An attempt that was moved away because its datacenter is evacuated was served as long as it was there.
"""

from collections.abc import Iterator

from control_plane.contracts.usage import Attempt, UsageRecord

REFUSED_REQUEST = frozenset({400, 403, 413, 415, 422})
UNCOUNTED = REFUSED_REQUEST | {429}


def judged(record: UsageRecord) -> Iterator[tuple[str, bool | None]]:
    """Each attempt of a request: its datacenter, and whether that did what it was asked for; null where that is no
    question. A request that was refused for what it is says nothing of any."""
    last = len(record.attempts) - 1
    for index, attempt in enumerate(record.attempts):
        is_error = index == last and record.finish_reason == "error"
        yield attempt.datacenter_id, None if record.http_status in REFUSED_REQUEST else served(attempt, is_error)


def served(attempt: Attempt, is_error: bool = False) -> bool | None:
    """Whether a datacenter did what it was asked for; null where that is no question. `is_error`: its answer ended
    with an error."""
    if attempt.status in UNCOUNTED:
        return None
    if attempt.status == 0:
        return False if attempt.failed else None  # the client left before there was an answer
    return attempt.status == 200 and not attempt.failed and not is_error


def first_byte_s(record: UsageRecord) -> float | None:
    """How long the one datacenter that served a request took to begin; null where several had a part in it."""
    if len(record.attempts) != 1 or record.ttft_ms is None or not any(is_good for _, is_good in judged(record)):
        return None
    return record.ttft_ms / 1_000


def token_gap_s(record: UsageRecord) -> float | None:
    """The mean time between two tokens of a stream that one datacenter served; null where that is no question."""
    first_s = first_byte_s(record)
    if first_s is None or not record.streamed or record.completion_tokens < 2:
        return None
    return max(record.duration_ms / 1_000 - first_s, 0.0) / (record.completion_tokens - 1)
