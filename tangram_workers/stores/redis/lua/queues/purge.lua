-- Empties a queue, some messages at a time, late ones included. Held ones stay with their holders.
--
-- ARGV[2]  queue   ARGV[3]  most messages
--
-- Returns  how many messages were removed; call again until it is 0
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua

allow_when_full()
local queue, limit = ARGV[2], tonumber(ARGV[3])
local count = 0
for _, class in ipairs(redis.call('SMEMBERS', Q .. queue .. ':c')) do
  for _, entry in ipairs(redis.call('ZRANGE', Q .. queue .. ':z:' .. class, 0, limit - count - 1)) do
    dequeue(queue, class, entry)
    forget_message(queue, entry)
    count = count + 1
  end
  if count >= limit then return count end
end
tidy(queue)
for _, entry in ipairs(redis.call('ZRANGE', Q .. queue .. ':d', 0, limit - count - 1)) do
  redis.call('ZREM', Q .. queue .. ':d', entry)
  forget_message(queue, entry)
  count = count + 1
end
return count
