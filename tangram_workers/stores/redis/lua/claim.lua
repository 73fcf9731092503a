-- Gives a waiting action to a worker under a lease. At most one claim of a generation succeeds,
-- so a message that the transport delivers twice runs once.
--
-- KEYS[1]  action record   KEYS[2]  waiting set   KEYS[3]  due set
-- ARGV[1]  action id       ARGV[2]  holder        ARGV[3]  node
-- ARGV[4]  lease, seconds  ARGV[5]  result TTL, seconds
-- ARGV[6]  first part of trajectory keys   ARGV[7]  workspace TTL, seconds
-- ARGV[8]  first part of node keys
--
-- Returns  {'claimed', body, attempt, generation, submitted_s, queued_s, now, workspace}
--          {'ended', result}   it has its answer already
--          {'taken'}           another worker runs it
--          {'elsewhere', score, node}  its trajectory's workspace is on another node, which lives:
--                                 the caller publishes its message again, for that node to take
--          {'unknown'}         no such action (its result's time is over)
--include _finish.lua

local record = read(KEYS[1])
if not record.state then return { 'unknown' } end
if record.result then return { 'ended', record.result } end
if record.state ~= 'queued' then return { 'taken' } end

local time = now()
if time >= tonumber(record.queued_s) + tonumber(record.queue_timeout_s) then
  local message = 'It waited longer than its queue_timeout_s=' .. record.queue_timeout_s
    .. ' in queue ' .. record.queue .. '. Add workers or allow a longer wait.'
  local result = own_result(ARGV[1], record, 'expired', message, time)
  finish(KEYS[1], KEYS[2], KEYS[3], ARGV[1], 'expired', result, ARGV[5])
  return { 'ended', result }
end

-- A trajectory is bound to the node and the workspace of its first action until its last one
-- completes: "<time of its first claim> <node>". A later trajectory of the same name has another.
local workspace = ''
if record.trajectory ~= '' then
  local trajectory_key = ARGV[6] .. record.trajectory
  local bound = redis.call('GET', trajectory_key) or string.format('%.6f %s', time, ARGV[3])
  local space = string.find(bound, ' ', 1, true)
  local node = string.sub(bound, space + 1)
  workspace = string.sub(bound, 1, space - 1)
  if node ~= ARGV[3] then
    if redis.call('EXISTS', ARGV[8] .. node) == 1 then
      return { 'elsewhere', score_of(record), node }
    end
    local message = 'The workspace of trajectory ' .. record.trajectory .. ' was on node ' .. node
      .. ', which is gone. Start the trajectory again.'
    local result = own_result(ARGV[1], record, 'infrastructure_error', message, time)
    finish(KEYS[1], KEYS[2], KEYS[3], ARGV[1], 'infrastructure_error', result, ARGV[5])
    return { 'ended', result }
  end
  redis.call('SET', trajectory_key, bound, 'EX', ARGV[7])
end

local generation = redis.call('HINCRBY', KEYS[1], 'generation', 1)
local attempt = redis.call('HINCRBY', KEYS[1], 'attempt', 1)
redis.call('HSET', KEYS[1], 'state', 'running', 'holder', ARGV[2], 'node', ARGV[3],
  'started_s', string.format('%.6f', time))
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], time + tonumber(ARGV[4]), ARGV[1])
return { 'claimed', record.body, attempt, generation, record.submitted_s, record.queued_s,
  string.format('%.6f', time), workspace }
