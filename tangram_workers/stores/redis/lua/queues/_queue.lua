-- Shared part: entries of queues and the workers that wait for them.
--
-- An entry is a member of one class of its queue. Its name is 13 hexadecimal digits that count up,
-- so that of equal scores the first in is the first out, also after it was put back.

local function next_entry() return string.format('%013x', redis.call('INCR', G .. 'sequence')) end

-- A queue with a life time (Q:x, milliseconds) takes all its keys with it when it is not used; any
-- other is remembered from its first entry on, so that whoever looks after the fleet finds it.
local function touch_queue(queue, is_first)
  local key = Q .. queue
  local ttl_ms = redis.call('GET', key .. ':x')
  if not ttl_ms then
    if is_first then redis.call('SADD', G .. 'queues', queue) end
    return
  end
  for _, part in ipairs({ '', ':c', ':m', ':h', ':d', ':x' }) do
    redis.call('PEXPIRE', key .. part, ttl_ms)
  end
  for _, class in ipairs(redis.call('SMEMBERS', key .. ':c')) do
    redis.call('PEXPIRE', key .. ':z:' .. class, ttl_ms)
  end
end

local known_class = {}

-- Puts an entry into its queue; true if the queue was empty.
local function enqueue(queue, class, score, entry)
  local key = Q .. queue
  redis.call('ZADD', key .. ':z:' .. class, score, entry)
  local name = queue .. ':' .. class
  if not known_class[name] then
    known_class[name] = true
    redis.call('SADD', key .. ':c', class)
  end
  return redis.call('RPUSH', key, 1) == 1
end

-- Takes an entry out of its queue; true if it was there.
local function dequeue(queue, class, entry)
  local key = Q .. queue
  if redis.call('ZREM', key .. ':z:' .. class, entry) == 0 then return false end
  redis.call('LPOP', key)
  -- Only what is too wide for some units is ever passed over.
  if units_of(class) > 1 then redis.call('HDEL', key .. ':b', entry) end
  return true
end

-- Forgets the classes of an empty queue; a claim does so by itself where it finds one empty.
local function tidy(queue)
  if redis.call('EXISTS', Q .. queue) == 0 then redis.call('DEL', Q .. queue .. ':c') end
end

local function unpark(queue, holder) redis.call('ZREM', Q .. queue .. ':w', holder) end

local function park(queue, holder, free)
  redis.call('ZADD', Q .. queue .. ':w', free, holder)
  redis.call('EXPIRE', Q .. queue .. ':w', 60)
end

local function ring_bell(holder)
  local bell = G .. 'bell:' .. holder
  redis.call('RPUSH', bell, 1)
  redis.call('EXPIRE', bell, 60)
end

-- The worker that waits for work with the fewest free units that are enough, or nil.
local function find_parked(queue, units, node)
  local key = Q .. queue .. ':w'
  if not node then return redis.call('ZRANGEBYSCORE', key, units, '+inf', 'LIMIT', 0, 1)[1] end
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', key, units, '+inf')) do
    if node_of(holder) == node then return holder end
  end
  return nil
end

-- Wakes one worker that waits for work and has room for an entry of this class.
local nobody = {}

local function wake(queue, class)
  local units, node = units_of(class), bound_node(class)
  local asked = queue .. '@' .. (node or '')
  if nobody[asked] and nobody[asked] <= units then return end
  local holder = find_parked(queue, units, node)
  if not holder then
    nobody[asked] = units
    return
  end
  unpark(queue, holder)
  ring_bell(holder)
end
