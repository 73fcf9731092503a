-- Acknowledges messages, and tells anew how many units a waiting worker has free.
--
-- ARGV[2]  holder     ARGV[3]  free units, '' if it does not wait
-- ARGV[4]  number of queues, then their names, then (queue, entry, generation) of acknowledgements
--
-- Returns  how many were acknowledged; the others were no longer this holder's
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua

allow_when_full()
local holder, queue_count = ARGV[2], tonumber(ARGV[4])
local settled = settle(holder, 5 + queue_count, #ARGV)
if ARGV[3] ~= '' then
  local has_work = false
  for at = 5, 4 + queue_count do
    if redis.call('EXISTS', Q .. ARGV[at]) == 1 then has_work = true end
  end
  for at = 5, 4 + queue_count do
    if has_work then unpark(ARGV[at], holder) else park(ARGV[at], holder, ARGV[3]) end
  end
  if has_work then ring_bell(holder) end
end
return settled
