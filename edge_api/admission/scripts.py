"""What Valkey does for the limits, each in one step on one key, by Valkey's own clock.

A rate is a hash of slots of `SLOT_MS`: how many units were used in each. A slot counts until `WINDOW_SLOTS` whole slots
have passed after it, so any minute is within the slots that count, and what is given back goes to the slot that it was
taken in. Slots of streams are a hash, too: what each edge holds, and until when.

Each script answers a list of integers. Nothing here ever fails on a key that is gone: a wiped Valkey is an unused one.
"""

import hashlib
from typing import NamedTuple

SLOT_MS = 2_000
WINDOW_MS = 60_000
WINDOW_SLOTS = WINDOW_MS // SLOT_MS
KEPT_MS = WINDOW_MS + 2 * SLOT_MS


class Script(NamedTuple):
    """A script and the name under which Valkey has it."""

    text: str
    sha: str


def _script(text: str) -> Script:
    for name, value in (("SLOT_MS", SLOT_MS), ("WINDOW_SLOTS", WINDOW_SLOTS), ("KEPT_MS", KEPT_MS)):
        text = text.replace(f"${name}", str(value))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


# ARGV: limit, at_least, want. Answers granted, slot, left, ms until `at_least` is free (0 if granted), ms until the
# oldest use no longer counts, now in ms. Above `at_least` an eighth of what is left then may be granted, and nothing
# once less than a quarter of the limit is left.
TAKE = _script("""
local limit, at_least, want = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local slot = math.floor(now_ms / $SLOT_MS)
local raw, used, counted, stale = redis.call('HGETALL', KEYS[1]), 0, {}, {}
for i = 1, #raw, 2 do
  local at, units = tonumber(raw[i]), tonumber(raw[i + 1])
  if at < slot - $WINDOW_SLOTS then
    stale[#stale + 1] = raw[i]
  elseif units > 0 then
    used = used + units
    counted[#counted + 1] = {at, units}
  end
end
if #stale > 0 then redis.call('HDEL', KEYS[1], unpack(stale)) end
table.sort(counted, function(a, b) return a[1] < b[1] end)
local function free_ms(at) return (at + $WINDOW_SLOTS + 1) * $SLOT_MS - now_ms end
local left = limit - used
if left < at_least then
  local wait_ms, freed = free_ms(slot), left
  for _, entry in ipairs(counted) do
    freed = freed + entry[2]
    if freed >= at_least then wait_ms = free_ms(entry[1]) break end
  end
  return {0, slot, left, wait_ms, counted[1] and free_ms(counted[1][1]) or 0, now_ms}
end
local more = left - at_least
local granted = math.max(at_least, math.min(want, at_least + (more * 4 > limit and math.floor(more / 8) or 0)))
if granted > 0 then
  redis.call('HINCRBY', KEYS[1], slot, granted)
  redis.call('PEXPIRE', KEYS[1], $KEPT_MS)
end
local oldest = counted[1] and counted[1][1] or slot
return {granted, slot, left - granted, 0, free_ms(oldest), now_ms}
""")

# ARGV: slot, units, slot, units …: units that were used in a slot beyond what was taken, or, negative, less.
CORRECT = _script("""
local time = redis.call('TIME')
local first = math.floor((time[1] * 1000 + time[2] / 1000) / $SLOT_MS) - $WINDOW_SLOTS
for i = 1, #ARGV, 2 do
  if tonumber(ARGV[i]) >= first and redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) <= 0 then
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
redis.call('PEXPIRE', KEYS[1], $KEPT_MS)
return {1}
""")

# ARGV: edge, limit, held, wanted, spare, ms. What the edge holds it holds, whatever the limit says: it runs. It gets as
# many of `wanted` as fit, and an eighth of what is left then as `spare`. Answers what it holds now, and what is left.
HOLD = _script("""
local limit, held, wanted, spare = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local raw, others = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #raw, 2 do
  local count, until_ms = string.match(raw[i + 1], '^(%d+) (%d+)$')
  if not count or tonumber(until_ms) <= now_ms then
    redis.call('HDEL', KEYS[1], raw[i])
  elseif raw[i] ~= ARGV[1] then
    others = others + tonumber(count)
  end
end
local room = math.max(0, limit - others - held)
local more = math.min(wanted, room)
more = more + math.min(spare, math.floor((room - more) / 8))
local total = held + more
if total > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%d %d', total, now_ms + ARGV[6]))
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[6]) then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return {total, math.max(0, limit - others - total)}
""")

SCRIPTS = {script.sha: script for script in (TAKE, CORRECT, HOLD)}
