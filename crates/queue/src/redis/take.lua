-- Takes messages: moves those whose time has come into the stream, then takes over what has been
-- delivered without an acknowledgement for longer than the lease, then takes new ones.
-- KEYS: stream, waiting, keys, rescue. ARGV: group, worker, most, lease (ms), pause between two
-- searches for ended leases (ms; one for the whole group, because a search reads all leases).
-- Returns a list of {id, deliveries, fields}, and the time until the next waiting message (ms, or -1).
local stream, waiting, keys, rescue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, worker, most, lease, pause = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

for _, packed in ipairs(redis.call('ZRANGE', waiting, '-inf', now, 'BYSCORE', 'LIMIT', 0, most)) do
  local fields = cmsgpack.unpack(packed)
  local id = redis.call('XADD', stream, '*', unpack(fields))
  redis.call('ZREM', waiting, packed)
  for i = 1, #fields, 2 do
    if fields[i] == 'key' and fields[i + 1] ~= '' then
      redis.call('HSET', keys, fields[i + 1], id)
    end
  end
end

local found = {}
if redis.call('EXISTS', rescue) == 0 then
  local ended = redis.call('XPENDING', stream, group, 'IDLE', lease, '-', '+', most)
  if #ended < most then
    redis.call('SET', rescue, worker, 'PX', pause)
  end
  if #ended > 0 then
    local ids, deliveries = {}, {}
    for i, entry in ipairs(ended) do
      ids[i] = entry[1]
      deliveries[entry[1]] = entry[4] + 1
    end
    for _, entry in ipairs(redis.call('XCLAIM', stream, group, worker, lease, unpack(ids))) do
      -- An entry that somebody trimmed is not returned, or as false by older servers.
      if entry and entry[2] then
        found[#found + 1] = {entry[1], deliveries[entry[1]], entry[2]}
      end
    end
  end
end

if #found < most then
  local read = redis.call('XREADGROUP', 'GROUP', group, worker, 'COUNT', most - #found, 'STREAMS', stream, '>')
  if read then
    for _, entry in ipairs(read[1][2]) do
      found[#found + 1] = {entry[1], 1, entry[2]}
    end
  end
end

local next_due = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
return {found, next_due[2] and math.max(0, tonumber(next_due[2]) - now) or -1}
