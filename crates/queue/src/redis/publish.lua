-- Adds messages whose key is not queued yet. A message with a time goes to the set of waiting ones.
-- KEYS: stream, waiting, keys. ARGV, for each message: key, due (ms, 0 for now), number of fields
-- and values, then these. Returns how many were added.
local stream, waiting, keys = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local messages, names, at = {}, {}, 1
while at <= #ARGV do
  local count = tonumber(ARGV[at + 2])
  messages[#messages + 1] = {due = tonumber(ARGV[at + 1]), fields = {unpack(ARGV, at + 3, at + 2 + count)}}
  names[#names + 1] = ARGV[at]
  at = at + 3 + count
end
if #messages == 0 then
  return 0
end
local places, queued, added = {}, {}, 0
local before = redis.call('HMGET', keys, unpack(names))
for i, message in ipairs(messages) do
  local name, known = names[i], before[i]
  -- An entry that somebody trimmed does not keep its key for ever.
  if known and known ~= 'waiting' and #redis.call('XRANGE', stream, known, known) == 0 then
    known = false
  end
  if name == '' or not (known or places[name]) then
    local place = 'waiting'
    if message.due > now then
      redis.call('ZADD', waiting, message.due, cmsgpack.pack(message.fields))
    else
      place = redis.call('XADD', stream, '*', unpack(message.fields))
    end
    if name ~= '' then
      places[name] = place
      queued[#queued + 1] = name
      queued[#queued + 1] = place
    end
    added = added + 1
  end
end
if #queued > 0 then
  redis.call('HSET', keys, unpack(queued))
end
return added
