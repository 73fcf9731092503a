-- Removes a queue and all its messages, those that somebody holds included.
--
-- ARGV[2]  queue
--
-- Returns  nothing
--include queues/_base.lua
--include queues/_queue.lua

allow_when_full()
local key = Q .. ARGV[2]
for _, class in ipairs(redis.call('SMEMBERS', key .. ':c')) do
  redis.call('DEL', key .. ':z:' .. class)
end
for _, part in ipairs({ '', ':c', ':m', ':h', ':d', ':b', ':w', ':x' }) do
  redis.call('DEL', key .. part)
end
redis.call('SREM', G .. 'queues', ARGV[2])
return false
