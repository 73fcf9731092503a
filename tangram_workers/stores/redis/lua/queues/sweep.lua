-- Looks after everything whose time is up. Anybody may run it, any number of times at once.
--
-- What was held past its lease, so that its worker is dead or cut off, waits again with its old
-- score; what lost its holders too often becomes a dead letter. Late messages whose time has come
-- are queued. What is bound to a node without a living holder may go to any.
--
-- ARGV[2]  most losses         ARGV[3]  most entries of each kind to look at
-- ARGV[4]  lease, seconds      ARGV[5]  seconds between two sweeps of one process
--
-- Returns  how many entries were dealt with
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua
--include queues/_letters.lua

allow_when_full()
local most_losses, limit = tonumber(ARGV[2]), ARGV[3]
local lease_s, period_s = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = now()
local count = 0

local function lose(queue, entry)
  local facts = read_facts(queue, entry)
  if not facts or facts[HOLDER] == '' then
    redis.call('ZREM', G .. 'leases', lease_name(queue, entry))
    return
  end
  tell(facts, 'was lost', time)
  facts[LOSSES] = facts[LOSSES] + 1
  if facts[LOSSES] < most_losses then
    requeue_message(queue, entry, facts)
  else
    bury_message(queue, entry, facts, time)
  end
end

-- While the server was away, or stood still, nobody could renew: holders get a lease's time to
-- come back before they are judged.
local swept = tonumber(redis.call('GET', G .. 'swept') or 0)
redis.call('SET', G .. 'swept', digits(time), 'EX', 3600)
if time - swept > math.max(lease_s, 3 * period_s) then
  redis.call('SET', G .. 'judge_from', digits(time + lease_s), 'EX', 3600)
end
local uptime_s = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
local judges = uptime_s >= lease_s + 1 and time >= tonumber(redis.call('GET', G .. 'judge_from') or 0)
if judges then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', G .. 'leases', '-inf', digits(time), 'LIMIT', 0,
      limit)) do
    lose(parse_lease_name(name))
    count = count + 1
  end
end

for _, queue in ipairs(redis.call('SMEMBERS', G .. 'queues')) do
  promote(queue, time, limit)
  for _, class in ipairs(redis.call('SMEMBERS', Q .. queue .. ':c')) do
    local node = bound_node(class)
    if node and judges and redis.call('EXISTS', G .. 'node:' .. node) == 0 then
      local free_class = tostring(units_of(class))
      local lost = redis.call('ZRANGE', Q .. queue .. ':z:' .. class, 0, limit - 1, 'WITHSCORES')
      for at = 1, #lost, 2 do
        local entry, score = lost[at], lost[at + 1]
        dequeue(queue, class, entry)
        local facts = read_facts(queue, entry) or new_facts(score, class)
        facts[CLASS] = free_class
        write_facts(queue, entry, facts)
        enqueue(queue, free_class, score, entry)
        wake(queue, free_class)
        count = count + 1
      end
      if #lost == 0 then redis.call('SREM', Q .. queue .. ':c', class) end
    end
  end
end
return count
