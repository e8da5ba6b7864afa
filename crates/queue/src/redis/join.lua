-- Joins the group of the queue. Messages are deleted when they are acknowledged, so a second group
-- would miss some: the name of another group is returned, otherwise an empty string.
-- Consumers of workers that ended are removed if they hold nothing; one that holds something is
-- kept, because its messages would be lost with it.
-- KEYS: stream. ARGV: group, idle time of a consumer that is removed (ms).
local stream, group, idle_max = KEYS[1], ARGV[1], tonumber(ARGV[2])
local function pairs_of(flat)
  local map = {}
  for i = 1, #flat, 2 do
    map[flat[i]] = flat[i + 1]
  end
  return map
end
local is_there = false
if redis.call('EXISTS', stream) == 1 then
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local name = pairs_of(flat).name
    if name ~= group then
      return name
    end
    is_there = true
  end
end
if not is_there then
  redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  return ''
end
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local consumer = pairs_of(flat)
  if consumer.pending == 0 and consumer.idle > idle_max then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer.name)
  end
end
return ''
