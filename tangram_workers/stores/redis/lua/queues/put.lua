-- Publishes messages, one or a batch, all or none.
--
-- ARGV[2]  life time of a queue that has none yet, "<queue>\n<milliseconds>" or ''
-- then for each message: queue, score, class, due time in seconds ('' for now), payload.
-- A score is a number, or "@<seconds>" for so long after its arrival.
--
-- Returns  how many
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua

local time = now()
local count = 0
local queues = {}
if ARGV[2] ~= '' then
  local queue, ttl_ms = string.match(ARGV[2], '^(.*)\n(%d+)$')
  redis.call('SET', Q .. queue .. ':x', ttl_ms, 'PX', ttl_ms, 'NX')
end
for at = 3, #ARGV, 5 do
  local queue, score, class, due, payload = unpack(ARGV, at, at + 4)
  local entry = next_entry()
  local due_s = tonumber(due)
  local is_late = due_s and due_s > time
  redis.call('HSET', Q .. queue .. ':m', entry, payload)
  if string.sub(score, 1, 1) == '@' then
    -- What is due later has arrived when it is due: else it would overtake all that came meanwhile.
    score = digits((is_late and due_s or time) + tonumber(string.sub(score, 2)))
  end
  if is_late then
    write_facts(queue, entry, new_facts(score, class))
    redis.call('ZADD', Q .. queue .. ':d', due, entry)
    queues[queue] = true
  else
    queues[queue] = enqueue(queue, class, score, entry) or queues[queue] or false
  end
  -- Of a late message, too: a worker that waits must learn when to look again.
  wake(queue, class)
  count = count + 1
end
for queue, is_first in pairs(queues) do touch_queue(queue, is_first) end
return count
