-- Takes the best messages that fit a worker, each under a lease; acknowledges what it is done with.
--
-- ARGV[2]  holder             ARGV[3]  most messages to take
-- ARGV[4]  free units         ARGV[5]  units when nothing runs
-- ARGV[6]  lease, seconds     ARGV[7]  seconds after which units are kept free for a wide message
-- ARGV[8]  '1' to be woken, by a push to G:bell:<holder>, when there is more
-- ARGV[9]  number of queues, then their names, then (queue, entry, generation) of acknowledgements
--
-- Returns  { milliseconds until the next late message is due or -1, 1 if it will be woken else 0,
--           {queue, entry, generation, deliveries, units, payload}, ... }
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua
--include queues/_claim.lua

local time = now()
local holder = ARGV[2]
-- Rings of before are answered by this very claim. It is a write that a full server allows, too.
redis.call('DEL', G .. 'bell:' .. holder)
local limit = tonumber(ARGV[3])
local request = {
  time = time, holder = holder, node = node_of(holder), limit = limit,
  chunk = math.max(1, math.min(16, limit)), free = tonumber(ARGV[4]), capacity = tonumber(ARGV[5]),
  lease_s = tonumber(ARGV[6]), reserve_after_s = tonumber(ARGV[7]),
}
local queue_count = tonumber(ARGV[9])
local queues = {}
for at = 10, 9 + queue_count do
  queues[#queues + 1] = ARGV[at]
end
settle(holder, 10 + queue_count, #ARGV)

local next_due
for _, queue in ipairs(queues) do
  local due = promote(queue, time, 100, holder)
  if due and (not next_due or due < next_due) then next_due = due end
end
local taken, free, left = take(queues, request)
local parks = ARGV[8] == '1' and left > 0
for _, queue in ipairs(queues) do
  if parks then park(queue, holder, free) else unpark(queue, holder) end
  -- What is known of a held message must not outlive a queue with a life time.
  if #taken > 0 then touch_queue(queue, false) end
end
local wait_ms = next_due and math.max(0, math.ceil((next_due - time) * 1000)) or -1
return { wait_ms, parks and 1 or 0, unpack(taken) }
