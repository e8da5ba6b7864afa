-- Adds messages whose key is not queued yet. A message with a time goes to the set of waiting ones.
-- KEYS: stream, waiting, keys. ARGV, for each message: key, due (ms, 0 for now), number of fields
-- and values, then these. Returns how many were added.
local stream, waiting, keys = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local added, at = 0, 1
while at <= #ARGV do
  local key, due, count = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local fields = {unpack(ARGV, at + 3, at + 2 + count)}
  at = at + 3 + count
  local known = key ~= '' and redis.call('HGET', keys, key)
  -- An entry that somebody trimmed does not keep its key for ever.
  if known and known ~= 'waiting' and #redis.call('XRANGE', stream, known, known) == 0 then
    known = false
  end
  if not known then
    local place = 'waiting'
    if due > now then
      redis.call('ZADD', waiting, due, cmsgpack.pack(fields))
    else
      place = redis.call('XADD', stream, '*', unpack(fields))
    end
    if key ~= '' then
      redis.call('HSET', keys, key, place)
    end
    added = added + 1
  end
end
return added
