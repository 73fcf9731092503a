-- Shared part: dead letters, what lost its holders too often. Kept for a week, at most 10,000.
--
-- G:dead           name -> when it was buried      G:dead:letters  name -> the letter, packed

local LETTERS_LIMIT = 10000
local LETTERS_TTL_S = 7 * 24 * 3600

local function drop_letter(name)
  redis.call('HDEL', G .. 'dead:letters', name)
  return redis.call('ZREM', G .. 'dead', name)
end

local function bury(name, letter)
  redis.call('HSET', G .. 'dead:letters', name, cmsgpack.pack(letter))
  redis.call('ZADD', G .. 'dead', digits(letter.buried_s), name)
  local surplus = redis.call('ZCARD', G .. 'dead') - LETTERS_LIMIT
  if surplus > 0 then
    for _, oldest in ipairs(redis.call('ZRANGE', G .. 'dead', 0, surplus - 1)) do
      drop_letter(oldest)
    end
  end
  redis.call('EXPIRE', G .. 'dead', LETTERS_TTL_S)
  redis.call('EXPIRE', G .. 'dead:letters', LETTERS_TTL_S)
end

-- Adds a line to a story: which delivery ended where, when and how.
local function tell(facts, how, time)
  local line = string.format('delivery %d: worker %s on node %s %s at %.3f', facts[DELIVERIES],
    worker_of(facts[HOLDER]), node_of(facts[HOLDER]), how, time)
  facts[STORY] = facts[STORY] == '' and line or (facts[STORY] .. '\n' .. line)
end

local function bury_message(queue, entry, facts, time)
  local payload = redis.call('HGET', Q .. queue .. ':m', entry)
  if payload then
    bury(entry .. '@' .. queue, { entry = entry, queue = queue, payload = payload, facts = facts,
      buried_s = time })
  end
  forget_message(queue, entry)
  tidy(queue)
end
