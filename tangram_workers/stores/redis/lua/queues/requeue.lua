-- Puts messages back into their queues with their old scores. Only their holder can.
--
-- ARGV[2]  holder     ARGV[3]  '1' if the delivery counts
-- ARGV[4]  most deliveries: what was put back that often becomes a dead letter
-- then (queue, entry, generation) of each
--
-- Returns  how many were put back or buried
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua
--include queues/_letters.lua

allow_when_full()
local time = now()
local count = 0
for at = 5, #ARGV, 3 do
  local facts = held_message(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[2])
  if facts then
    if ARGV[3] ~= '1' then
      facts[DELIVERIES] = facts[DELIVERIES] - 1
      requeue_message(ARGV[at], ARGV[at + 1], facts)
    else
      tell(facts, 'put it back', time)
      if facts[DELIVERIES] < tonumber(ARGV[4]) then
        requeue_message(ARGV[at], ARGV[at + 1], facts)
      else
        bury_message(ARGV[at], ARGV[at + 1], facts, time)
      end
    end
    count = count + 1
  end
end
return count
