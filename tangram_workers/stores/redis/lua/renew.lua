-- Renews the lease of a running action.
--
-- KEYS[1]  action record   KEYS[2]  due set
-- ARGV[1]  action id       ARGV[2]  generation    ARGV[3]  lease, seconds
--
-- Returns  'held'    renewed
--          'cancel'  renewed, but somebody asked for its cancellation
--          'lost'    no longer this holder's: stop, its result will be refused
--include _finish.lua

local state = redis.call('HMGET', KEYS[1], 'state', 'generation', 'cancel')
if state[1] ~= 'running' or state[2] ~= ARGV[2] then return 'lost' end
redis.call('ZADD', KEYS[2], now() + tonumber(ARGV[3]), ARGV[1])
return state[3] and 'cancel' or 'held'
