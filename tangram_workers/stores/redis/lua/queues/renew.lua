-- Renews leases, and says that their holder and its node live.
--
-- ARGV[2]  holder     ARGV[3]  lease, seconds
-- then (queue, entry, generation) of each lease
--
-- Returns  for each: 1 if it is held, 0 if it is no longer this holder's
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua

allow_when_full()
local holder, lease_s = ARGV[2], tonumber(ARGV[3])
local deadline = digits(now() + lease_s)
local alive_ms = math.ceil(lease_s * 2000)
redis.call('SET', G .. 'holder:' .. holder, 1, 'PX', alive_ms)
redis.call('SET', G .. 'node:' .. node_of(holder), 1, 'PX', alive_ms)
local states = {}
for at = 4, #ARGV, 3 do
  local queue, entry = ARGV[at], ARGV[at + 1]
  local is_held = held_message(queue, entry, ARGV[at + 2], holder)
  if is_held then
    redis.call('ZADD', G .. 'leases', deadline, lease_name(queue, entry))
    -- A queue with a life time outlives what is still being done with its messages.
    if redis.call('EXISTS', Q .. queue .. ':x') == 1 then touch_queue(queue, false) end
  end
  states[#states + 1] = is_held and 1 or 0
end
return states
