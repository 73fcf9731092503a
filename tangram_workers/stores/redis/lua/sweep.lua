-- Looks after every action whose time is up. Anybody may run it, any number of times at once.
--
-- Waiting past its queue time: ends as expired. Running past its lease, so its worker is dead or
-- cut off: waits again with its old score, or ends once its tries are used up.
--
-- KEYS[1]  due set
-- ARGV[1]  first part of action keys   ARGV[2]  first part of waiting-set keys
-- ARGV[3]  tries of an action          ARGV[4]  result TTL, seconds
-- ARGV[5]  most actions to look at      ARGV[6]  lease, seconds
--
-- Returns  a flat list of (action id, queue, score, 'queued' or 'ended') for each action whose
--          message must be published again: those that wait again, and those that have ended and
--          whose plain Celery caller waits for a worker to hand the result on.
--include _finish.lua

local published = {}
-- Leases could not be renewed while the server was away: give their holders time to come back.
local uptime_s = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
local leases_count = uptime_s > tonumber(ARGV[6]) + 2
local time = now()

local function publish(id, record, what)
  published[#published + 1] = id
  published[#published + 1] = record.queue
  published[#published + 1] = score_of(record)
  published[#published + 1] = what
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', time, 'LIMIT', 0, ARGV[5])) do
  local key = ARGV[1] .. id
  local record = read(key)
  local outcome, message
  if not record.state or record.result then
    redis.call('ZREM', KEYS[1], id)
  elseif record.state == 'queued' then
    outcome = 'expired'
    message = 'It waited longer than its queue_timeout_s=' .. record.queue_timeout_s
      .. ' in queue ' .. record.queue .. '. Add workers or allow a longer wait.'
  elseif not leases_count then
    redis.call('ZADD', KEYS[1], time + tonumber(ARGV[6]), id)
  elseif record.cancel then
    outcome = 'cancelled'
    message = 'It was cancelled; its worker ' .. record.holder .. ' was lost meanwhile.'
  elseif tonumber(record.attempt) >= tonumber(ARGV[3]) then
    outcome = 'infrastructure_error'
    message = 'Its worker ' .. record.holder .. ' on node ' .. record.node
      .. ' was lost while it ran, attempt ' .. record.attempt .. ' of ' .. ARGV[3]
      .. '. See that worker\'s log; the action may be what kills its workers.'
  else
    redis.call('HSET', key, 'state', 'queued', 'queued_s', string.format('%.6f', time))
    redis.call('HDEL', key, 'holder', 'started_s')
    redis.call('ZADD', ARGV[2] .. record.queue, score_of(record), id)
    redis.call('ZADD', KEYS[1], time + tonumber(record.queue_timeout_s), id)
    publish(id, record, 'queued')
  end
  if outcome then
    local result = own_result(id, record, outcome, message, time)
    finish(key, ARGV[2] .. record.queue, KEYS[1], id, outcome, result, ARGV[4])
    if record.plain == '1' then publish(id, record, 'ended') end
  end
end
return published
