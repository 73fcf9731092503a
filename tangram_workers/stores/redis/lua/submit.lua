-- Records an action, or joins one that is already known under its id.
--
-- KEYS[1]  action record      KEYS[2]  waiting set of its queue
-- KEYS[3]  due set            KEYS[4]  set of queues
-- ARGV[1]  action id          ARGV[2]  encoded action
-- ARGV[3]  queue              ARGV[4]  score less arrival time, seconds
-- ARGV[5]  queue timeout, seconds
-- ARGV[6]  inbox key of the submitter, '' for none
-- ARGV[7]  '1' if a plain Celery caller waits for the task's own result, else '0'
-- ARGV[8]  trajectory id, '' for none
--
-- Returns  {'new', score}      recorded; the caller publishes its message with this score
--          {'queued', score}   known and waiting; publishing once more does no harm
--          {'open', score}     known and running; the inbox will get its result
--          {'ended', result}   known and answered
--include _finish.lua

if redis.call('EXISTS', KEYS[1]) == 1 then
  local known = redis.call('HMGET', KEYS[1], 'result', 'state', 'submitted_s', 'inboxes', 'offset')
  if known[1] then return { 'ended', known[1] } end
  if ARGV[6] ~= '' and not string.find(' ' .. (known[4] or '') .. ' ', ' ' .. ARGV[6] .. ' ', 1, true) then
    redis.call('HSET', KEYS[1], 'inboxes', (known[4] or '') .. ' ' .. ARGV[6])
  end
  return { known[2] == 'queued' and 'queued' or 'open',
    score_of({ submitted_s = known[3], offset = known[5] }) }
end

local submitted = now()
local submitted_s = string.format('%.6f', submitted)
redis.call('HSET', KEYS[1],
  'body', ARGV[2], 'queue', ARGV[3], 'offset', ARGV[4], 'queue_timeout_s', ARGV[5],
  'inboxes', ARGV[6], 'plain', ARGV[7], 'trajectory', ARGV[8], 'state', 'queued', 'attempt', 0, 'generation', 0,
  'submitted_s', submitted_s, 'queued_s', submitted_s)
local score = score_of({ submitted_s = submitted_s, offset = ARGV[4] })
redis.call('ZADD', KEYS[2], score, ARGV[1])
redis.call('ZADD', KEYS[3], submitted + tonumber(ARGV[5]), ARGV[1])
redis.call('SADD', KEYS[4], ARGV[3])
return { 'new', score }
