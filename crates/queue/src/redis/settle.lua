-- Acknowledges, extends or gives back what this worker still holds.
-- KEYS: stream, waiting, keys. ARGV: group, worker, operation, delay (ms), then for each message
-- id, deliveries in the stream, key. Returns 1 or 0 for each: whether it was held.
local stream, waiting, keys = KEYS[1], KEYS[2], KEYS[3]
local group, worker, operation, delay = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = {}

local function give_back(id, deliveries, key)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if not entry then
    return
  end
  local fields, before, published = {}, 0, string.match(id, '^%d+')
  for i = 1, #entry[2], 2 do
    local name, value = entry[2][i], entry[2][i + 1]
    if name == 'deliveries' then
      before = tonumber(value) or 0
    elseif name == 'published' then
      published = value
    else
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  -- This delivery does not count: nobody worked on it.
  for _, value in ipairs({'published', published, 'deliveries', tostring(before + deliveries - 1)}) do
    fields[#fields + 1] = value
  end
  local place = 'waiting'
  if delay > 0 then
    redis.call('ZADD', waiting, now + delay, cmsgpack.pack(fields))
  else
    place = redis.call('XADD', stream, '*', unpack(fields))
  end
  if key ~= '' then
    redis.call('HSET', keys, key, place)
  end
end

local ids, names, is_done = {}, {}, {}
for at = 5, #ARGV, 3 do
  local id, deliveries, key = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
  local lease = redis.call('XPENDING', stream, group, id, id, 1)[1]
  local ours = lease and lease[2] == worker and lease[4] == deliveries
  held[#held + 1] = ours and 1 or 0
  if ours and operation == 'extend' then
    redis.call('XCLAIM', stream, group, worker, 0, id, 'JUSTID')
  elseif ours and not is_done[id] then
    is_done[id] = true
    ids[#ids + 1] = id
    names[#names + 1] = key
    if operation == 'requeue' then
      give_back(id, deliveries, key)
    end
  end
end
if #ids > 0 then
  redis.call('XACK', stream, group, unpack(ids))
  redis.call('XDEL', stream, unpack(ids))
  local free = {}
  for i, id in ipairs(redis.call('HMGET', keys, unpack(names))) do
    if id == ids[i] then
      free[#free + 1] = names[i]
    end
  end
  if #free > 0 then
    redis.call('HDEL', keys, unpack(free))
  end
end
return held
