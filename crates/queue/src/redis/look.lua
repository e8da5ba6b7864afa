-- The state of the queue, and its next messages.
-- KEYS: stream, waiting. ARGV: how many messages to show.
-- Returns: new, leased, waiting, waiting and due, the server's time (ms), list of {id, fields}.
local stream, waiting = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local leased, last = 0, '0-0'
if redis.call('EXISTS', stream) == 1 then
  local group = redis.call('XINFO', 'GROUPS', stream)[1] or {}
  for i = 1, #group, 2 do
    if group[i] == 'pending' then
      leased = group[i + 1]
    elseif group[i] == 'last-delivered-id' then
      last = group[i + 1]
    end
  end
end
-- What is acknowledged is deleted, so what is in the stream is either leased or new.
local new = math.max(0, redis.call('XLEN', stream) - leased)
local due = redis.call('ZCOUNT', waiting, '-inf', now)
local shown = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', ARGV[1])
return {new, leased, redis.call('ZCARD', waiting) - due, due, now, shown}
