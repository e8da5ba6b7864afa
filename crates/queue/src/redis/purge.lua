-- Deletes all messages and keeps the group. KEYS: stream, waiting, keys. Returns how many.
local stream, waiting, keys = KEYS[1], KEYS[2], KEYS[3]
local count = redis.call('XLEN', stream) + redis.call('ZCARD', waiting)
redis.call('DEL', waiting, keys)
if redis.call('EXISTS', stream) == 0 then
  return count
end
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local name = group[2]
  local leased = redis.call('XPENDING', stream, name, '-', '+', 1000)
  while #leased > 0 do
    for _, entry in ipairs(leased) do
      redis.call('XACK', stream, name, entry[1])
    end
    leased = redis.call('XPENDING', stream, name, '-', '+', 1000)
  end
end
redis.call('XTRIM', stream, 'MAXLEN', 0)
return count
