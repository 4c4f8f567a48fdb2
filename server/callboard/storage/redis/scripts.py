"""What is done in Redis, each in one step that nothing comes in between: Lua scripts, and the keys that they work with.

Every script's keys are of one hash slot, so a cluster runs it too: those of one run share its id as their hash tag, and
those that say which servers there are share another. Each script may be sent again where its answer was lost: the
second time it changes nothing, and answers the same.

| key of a run | what |
| --- | --- |
| `callboard:{ID}:run` | hash: `about`, `owner`, `epoch`, `losses`, `token`, `request`, `bytes`, `cancelled`, `ended` |
| `callboard:{ID}:frames` | list: the frame of number n stands at n - 1 |
| `callboard:{ID}:inputs` | hash: by the ids of questions nothing, or a token and the answer as JSON |
| `callboard:{ID}:files` | hash: `data:` URLs by the ids of files |
| `callboard:{ID}:listeners` | sorted set: servers at which somebody listens, by the time until which that holds |

| key of the servers | what |
| --- | --- |
| `callboard:{servers}:leases` | sorted set: servers, by the time at which their leases run out |
| `callboard:{servers}:runs:ID` | set: the runs of a server, and perhaps some that are not its own any more |
| `callboard:{servers}:ended` | sorted set: run, user and bytes as JSON, by the time of the end |
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

NEWS = "callboard:news:"
"""The beginning of the channel on which a server is told of runs, by their ids; its own id follows."""
NOBODY = ""
"""The owner of a run that was handed over: a server that is never there."""
LEASES = "callboard:{servers}:leases"
ENDED = "callboard:{servers}:ended"


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, and the digest by which Redis knows it."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


def keys_of_run(run_id: str) -> Sequence[str]:
    """Return the keys of a run, in the order in which scripts know them."""
    return [f"callboard:{{{run_id}}}:{name}" for name in ("run", "frames", "inputs", "files", "listeners")]


def keys_of_server(server_id: str) -> Sequence[str]:
    """Return the key of the leases, and that of a server's runs."""
    return [LEASES, f"callboard:{{servers}}:runs:{server_id}"]


_NOW = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local function at(seconds) return string.format('%.6f', seconds) end
"""

_FOUND = """
local function found()
  local run = redis.call('HMGET', KEYS[1], 'about', 'epoch', 'ended', 'cancelled', 'losses')
  local last = redis.call('LLEN', KEYS[2])
  return {run[1], tonumber(run[2]), last, run[3] and 1 or 0, run[4] and 1 or 0, tonumber(run[5] or 0)}
end
"""

# ------------------------------------------------------------------------------------------------ runs

FIND = Script(
    _FOUND
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
return found()
"""
)
"""Return about, epoch, number of the newest frame, whether ended and cancelled, losses; nothing where there is none."""

BEGIN = Script(
    _FOUND
    + """
local token, owner, epoch, about, request = unpack(ARGV)
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'token', token, 'owner', owner, 'epoch', epoch, 'about', about)
  if request ~= '' then redis.call('HSET', KEYS[1], 'request', request, 'bytes', #request) end
elseif redis.call('HGET', KEYS[1], 'token') ~= token then
  return found()
end
return false
"""
)
"""Make a run that there is not yet; return the one that there is as `FIND` does, nothing where it is the new one."""

APPEND = Script(
    _NOW
    + """
local run_id, epoch, before, keep_seconds = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local frames, questions, news = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local kept = redis.call('HGET', KEYS[1], 'epoch')
if not kept then return 'gone' end
if kept ~= epoch then return 'lost' end
local last = redis.call('LLEN', KEYS[2])
if last == before + frames then return 'kept' end
if last ~= before then return last end
local bytes, place = 0, 7
for _ = 1, frames do
  place = place + 1
  redis.call('RPUSH', KEYS[2], ARGV[place])
  bytes = bytes + #ARGV[place]
end
for _ = 1, questions do
  place = place + 1
  redis.call('HSETNX', KEYS[3], ARGV[place], '')
end
while place < #ARGV do
  redis.call('HSET', KEYS[4], ARGV[place + 1], ARGV[place + 2])
  bytes = bytes + #ARGV[place + 2]
  place = place + 2
end
redis.call('HINCRBY', KEYS[1], 'bytes', bytes)
for _, server in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], at(now), '+inf')) do
  redis.call('PUBLISH', news .. server, run_id)
end
if keep_seconds > 0 then
  redis.call('HSET', KEYS[1], 'ended', 1)
  redis.call('HDEL', KEYS[1], 'request')
  for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, keep_seconds) end
end
return 'kept'
"""
)
"""Add frames, the ids of questions among them, and files; end the run where it is to be kept for so many seconds yet.

Returns `kept`; `lost` where the epoch is another; `gone` where there is no such run; and the number of the newest frame
where that is not the one before the first of these.
"""

READ = Script(
    """
local after, max_bytes, frames, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), {}, 0
while bytes < max_bytes do
  local some = redis.call('LRANGE', KEYS[2], after + #frames, after + #frames + 31)
  for _, frame in ipairs(some) do
    table.insert(frames, frame)
    bytes = bytes + #frame
    if bytes >= max_bytes then break end
  end
  if #some < 32 then break end
end
return frames
"""
)
"""Return the frames after one, of about so many bytes."""

LOAD_REQUEST = Script("return redis.call('HGET', KEYS[1], 'request')")
LOAD_FILE = Script("return redis.call('HGET', KEYS[4], ARGV[1])")

LISTEN = Script(
    _NOW
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', at(now))
redis.call('ZADD', KEYS[5], at(now + ARGV[2]), ARGV[1])
local last = redis.call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')[2]
return redis.call('PEXPIREAT', KEYS[5], math.ceil(last * 1000))
"""
)
"""Note that somebody listens at a server, for so many seconds."""

IS_LISTENED_TO = Script(
    _NOW
    + """
for _, server in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], at(now), '+inf')) do
  if server ~= ARGV[1] then return 1 end
end
return 0
"""
)
"""Return whether somebody listens at another server than this."""

_TELL_OWNER = """
local function tell_owner(news, run_id)
  redis.call('PUBLISH', news .. redis.call('HGET', KEYS[1], 'owner'), run_id)
end
"""

CANCEL = Script(
    _TELL_OWNER
    + """
local run = redis.call('HMGET', KEYS[1], 'epoch', 'ended')
if not run[1] or run[2] then return 0 end
redis.call('HSET', KEYS[1], 'cancelled', 1)
tell_owner(ARGV[1], ARGV[2])
return 1
"""
)
"""Ask for the end of a run that goes on."""

ANSWER = Script(
    _TELL_OWNER
    + """
local news, run_id, question, token, answer = unpack(ARGV)
local given = redis.call('HGET', KEYS[3], question)
if not given or redis.call('HEXISTS', KEYS[1], 'ended') == 1 then return 0 end
if given == '' then
  redis.call('HSET', KEYS[3], question, token .. answer)
  tell_owner(news, run_id)
  return 1
end
return string.sub(given, 1, #token) == token and 1 or 0
"""
)
"""Answer a question of a run that goes on; return whether it was open. The token says whose answer it is."""

ORDERS = Script("return {redis.call('HEXISTS', KEYS[1], 'cancelled'), redis.call('HGETALL', KEYS[3])}")
"""Return whether the end was asked for, and questions and answers in turn."""

TAKE = Script(
    _FOUND
    + """
local gone, owner, nobody = unpack(ARGV)
local run = redis.call('HMGET', KEYS[1], 'owner', 'ended')
if not run[1] then return 'unknown' end
if run[2] then return 'ended' end
if run[1] ~= owner then
  if run[1] ~= gone and run[1] ~= nobody then return 'taken' end
  redis.call('HSET', KEYS[1], 'owner', owner)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  if run[1] ~= nobody then redis.call('HINCRBY', KEYS[1], 'losses', 1) end
end
return found()
"""
)
"""Make a run of a server that is gone another's, also one that it has handed over.

Return it as `FIND` does, or in a word why it is not to be had.
"""

OWNER = Script("return redis.call('HGET', KEYS[1], 'owner')")

HAND_OVER = Script(
    """
local owner, epoch, nobody = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local run = redis.call('HMGET', KEYS[1], 'owner', 'epoch')
if run[1] == nobody and tonumber(run[2]) == epoch + 1 then return 1 end
if run[1] ~= owner or tonumber(run[2]) ~= epoch then return 0 end
redis.call('HSET', KEYS[1], 'owner', nobody, 'epoch', epoch + 1)
return 1
"""
)
"""Make a run nobody's, in an epoch of its own; return whether it was the owner's."""

TELL = Script("return redis.call('PUBLISH', ARGV[1], '')")
"""Tell a server that there is a run to be taken over."""

WITHDRAW = Script(
    """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] or redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
return redis.call('UNLINK', KEYS[1])
"""
)
"""Forget a run of a server that has no frames yet; return whether it is one."""

FORGET = Script(
    """
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
return redis.call('UNLINK', unpack(KEYS))
"""
)
"""Forget a run, where it is still of that epoch."""

# --------------------------------------------------------------------------------------------- servers

RENEW = Script(
    _NOW
    + """
redis.call('ZADD', KEYS[1], at(now + ARGV[2]), ARGV[1])
return redis.call('ZCOUNT', KEYS[1], '(' .. at(now), '+inf')
"""
)
"""Let a server be known as there for so many seconds; return how many servers are there."""

LEAVE = Script(
    _NOW
    + """
if redis.call('EXISTS', KEYS[2]) == 0 then return redis.call('ZREM', KEYS[1], ARGV[1]) end
return redis.call('ZADD', KEYS[1], at(now), ARGV[1])
"""
)
"""Let a server be known as gone; where it leaves no runs, it is not known any more."""

SERVERS = Script(
    _NOW
    + """
local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', at(now))
local there = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. at(now), '+inf')
return {gone, there}
"""
)
"""Return the servers that are gone and may have left runs, and those that are there."""

ENLIST = Script(
    _NOW
    + """
redis.call('ZADD', KEYS[1], 'NX', at(now), ARGV[1])
return redis.call('SADD', KEYS[2], unpack(ARGV, 2))
"""
)
"""Count runs as a server's, before they are: whatever becomes of it then, they are found."""

LIST = Script("return redis.call('SMEMBERS', KEYS[2])")
"""Return the runs of a server."""

STRIKE = Script(
    _NOW
    + """
if #ARGV > 1 then redis.call('SREM', KEYS[2], unpack(ARGV, 2)) end
local is_gone = (tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1])) or 0) <= now
if is_gone and redis.call('EXISTS', KEYS[2]) == 0 then redis.call('ZREM', KEYS[1], ARGV[1]) end
return 1
"""
)
"""Count runs as a server's no longer; one that is gone and has none left is not known any more."""

SIZE = Script("return tonumber(redis.call('HGET', KEYS[1], 'bytes') or 0)")

COUNT_ENDED = Script(_NOW + "return redis.call('ZADD', KEYS[1], 'NX', at(now), ARGV[1])")
"""Note what an ended run takes."""

LIST_ENDED = Script(_NOW + "return {at(now), redis.call('ZRANGE', KEYS[1], 0, -1, 'REV', 'WITHSCORES')}")
"""Return the time, and what was noted of ended runs with the times of their ends, the newest first."""

DROP_ENDED = Script("return redis.call('ZREM', KEYS[1], ARGV[1])")
