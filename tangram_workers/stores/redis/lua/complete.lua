-- Ends an action with its worker's result. Only the holder of the current generation can.
--
-- KEYS[1]  action record   KEYS[2]  waiting set   KEYS[3]  due set
-- ARGV[1]  action id       ARGV[2]  generation    ARGV[3]  final state
-- ARGV[4]  encoded result  ARGV[5]  result TTL, seconds
-- ARGV[6]  trajectory key, if this was the last action of its trajectory, else ''
--
-- Returns  'completed' (also when this very result was stored before and only the answer got
--          lost), or 'lost' if the generation is over and the result was refused.
--include _finish.lua

local state = redis.call('HMGET', KEYS[1], 'state', 'generation', 'result')
if state[3] and state[3] == ARGV[4] then return 'completed' end
if state[1] ~= 'running' or state[2] ~= ARGV[2] then return 'lost' end
finish(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[3], ARGV[4], ARGV[5])
if ARGV[6] ~= '' then redis.call('DEL', ARGV[6]) end
return 'completed'
