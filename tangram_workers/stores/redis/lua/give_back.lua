-- Puts a running action back into its queue with its old score. Only its holder can.
--
-- KEYS[1]  action record   KEYS[2]  waiting set   KEYS[3]  due set
-- ARGV[1]  action id       ARGV[2]  generation
--
-- Returns  its score, or false if the generation is over.
--include _finish.lua

local record = read(KEYS[1])
if record.state ~= 'running' or record.generation ~= ARGV[2] then return false end
local time = now()
redis.call('HSET', KEYS[1], 'state', 'queued', 'queued_s', string.format('%.6f', time))
redis.call('HDEL', KEYS[1], 'holder', 'started_s')
redis.call('ZADD', KEYS[2], score_of(record), ARGV[1])
redis.call('ZADD', KEYS[3], time + tonumber(record.queue_timeout_s), ARGV[1])
return score_of(record)
