-- Cancels an action: at once while it waits, by its worker's next renewal while it runs.
--
-- KEYS[1]  action record   KEYS[2]  due set
-- ARGV[1]  action id       ARGV[2]  result TTL, seconds   ARGV[3]  first part of waiting-set keys
--
-- Returns  'cancelled' (it waited), 'asked' (it runs), 'ended' or 'unknown'
--include _finish.lua

local record = read(KEYS[1])
if not record.state then return 'unknown' end
if record.result then return 'ended' end
if record.state == 'running' then
  redis.call('HSET', KEYS[1], 'cancel', 1)
  return 'asked'
end
local result = own_result(ARGV[1], record, 'cancelled', 'It was cancelled before it started.', now())
finish(KEYS[1], ARGV[3] .. record.queue, KEYS[2], ARGV[1], 'cancelled', result, ARGV[2])
return 'cancelled'
