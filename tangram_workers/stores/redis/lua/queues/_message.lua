-- Shared part: messages, that is what entries stand for.
--
-- Q:<queue>:m  entry -> payload
-- Q:<queue>:h  entry -> what is known of it beside its payload, once there is something to know:
--              { generation, deliveries, score, class, holder or '', story, losses }

local GENERATION, DELIVERIES, SCORE, CLASS, HOLDER, STORY, LOSSES = 1, 2, 3, 4, 5, 6, 7

local function new_facts(score, class) return { 0, 0, score, class, '', '', 0 } end

local function read_facts(queue, entry)
  local packed = redis.call('HGET', Q .. queue .. ':h', entry)
  return packed and cmsgpack.unpack(packed)
end

local function write_facts(queue, entry, facts)
  redis.call('HSET', Q .. queue .. ':h', entry, cmsgpack.pack(facts))
end

local function lease_name(queue, entry) return queue .. '\n' .. entry end
local function parse_lease_name(name) return string.match(name, '^(.*)\n(%x+)$') end

local function forget_message(queue, entry)
  redis.call('HDEL', Q .. queue .. ':m', entry)
  redis.call('HDEL', Q .. queue .. ':h', entry)
  redis.call('ZREM', G .. 'leases', lease_name(queue, entry))
end

-- Facts of a message that this holder holds in this generation, else nil.
local function held_message(queue, entry, generation, holder)
  local facts = read_facts(queue, entry)
  if facts and facts[GENERATION] == tonumber(generation) and facts[HOLDER] == holder then
    return facts
  end
  return nil
end

-- Puts a message back into its queue with its old score; of a queue that is gone there is none.
local function requeue_message(queue, entry, facts)
  if redis.call('HEXISTS', Q .. queue .. ':m', entry) == 0 then
    forget_message(queue, entry)
    return
  end
  facts[HOLDER] = ''
  write_facts(queue, entry, facts)
  redis.call('ZREM', G .. 'leases', lease_name(queue, entry))
  local is_first = enqueue(queue, facts[CLASS], facts[SCORE], entry)
  wake(queue, facts[CLASS])
  touch_queue(queue, is_first)
end

-- Acknowledges (queue, entry, generation) triples in ARGV[first] up to ARGV[last].
local function settle(holder, first, last)
  local settled, queues = 0, {}
  for at = first, last, 3 do
    if held_message(ARGV[at], ARGV[at + 1], ARGV[at + 2], holder) then
      forget_message(ARGV[at], ARGV[at + 1])
      settled = settled + 1
      queues[ARGV[at]] = true
    end
  end
  for queue in pairs(queues) do tidy(queue) end
  return settled
end

-- Late messages of a queue whose time has come become entries. Returns when the next one is due.
-- A holder that is about to look by itself is not woken.
local function promote(queue, time, limit, looking)
  local key = Q .. queue .. ':d'
  local function next_due() return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) end
  local due = next_due()
  if not due or due > time then return due end
  if looking then unpark(queue, looking) end
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', digits(time), 'LIMIT', 0, limit)) do
    redis.call('ZREM', key, entry)
    local facts = read_facts(queue, entry)
    if facts then
      local is_first = enqueue(queue, facts[CLASS], facts[SCORE], entry)
      wake(queue, facts[CLASS])
      touch_queue(queue, is_first)
    end
  end
  return next_due()
end
