-- Shared part: how a worker takes the best entries that fit it.
--
-- A line is one class of one queue with its next few entries, best first. The best entry of all is
-- at the head of a line, so neither a wide entry nor a narrow one hides behind others.

-- Leases a message; returns what the reply says of it.
local function lease(line, entry, score, request)
  local queue = line.queue
  if not dequeue(queue, line.class, entry) then return nil end
  local payload = redis.call('HGET', Q .. queue .. ':m', entry)
  if not payload then return nil end -- its queue was deleted or has expired under it
  local facts = read_facts(queue, entry) or new_facts(score, line.class)
  facts[GENERATION], facts[DELIVERIES] = facts[GENERATION] + 1, facts[DELIVERIES] + 1
  facts[HOLDER] = request.holder
  write_facts(queue, entry, facts)
  redis.call('ZADD', G .. 'leases', digits(request.time + request.lease_s), lease_name(queue, entry))
  return { queue, entry, facts[GENERATION], facts[DELIVERIES], line.units, payload }
end

local function refill(line, count)
  line.heads = redis.call('ZRANGE', line.key, 0, count - 1, 'WITHSCORES')
  line.at = 1
  if #line.heads == 0 then
    redis.call('SREM', Q .. line.queue .. ':c', line.class)
    known_class[line.queue .. ':' .. line.class] = nil
  end
end

-- The lines that this worker could ever take from.
local function lines_of(queues, request)
  local lines = {}
  for _, queue in ipairs(queues) do
    for _, class in ipairs(redis.call('SMEMBERS', Q .. queue .. ':c')) do
      local node, units = bound_node(class), units_of(class)
      if units <= request.capacity and (not node or node == request.node) then
        local line = { queue = queue, class = class, units = units,
          key = Q .. queue .. ':z:' .. class }
        refill(line, request.chunk)
        if #line.heads > 0 then lines[#lines + 1] = line end
      end
    end
  end
  return lines
end

local function is_before(line, other)
  if not other then return true end
  local score, best = tonumber(line.heads[line.at + 1]), tonumber(other.heads[other.at + 1])
  if score ~= best then return score < best end
  return line.heads[line.at] < other.heads[other.at]
end

-- True if this worker keeps its units free for an entry that is first in line and too wide for
-- what is free now. One worker for each such entry does, once the entry was passed over for a
-- while, so a wide entry waits at most that long and then for what this worker runs already.
local function reserves(line, request)
  local key, entry = Q .. line.queue .. ':b', line.heads[line.at]
  local note = redis.call('HGET', key, entry)
  local since, holder = string.match(note or '', '^(%S+) (.*)$')
  if not since then since, holder = digits(request.time), '' end
  local is_due = request.time - tonumber(since) >= request.reserve_after_s
  if is_due and holder ~= request.holder
      and redis.call('EXISTS', G .. 'holder:' .. holder) == 0 then
    holder = request.holder
  end
  local new_note = since .. ' ' .. holder
  if new_note ~= note then
    redis.call('HSET', key, entry, new_note)
    redis.call('EXPIRE', key, 24 * 3600)
  end
  return is_due and holder == request.holder
end

-- The line whose head comes first of those with so many units at least and at most.
local function first_line(lines, fewest, most)
  local first
  for _, line in ipairs(lines) do
    if #line.heads > 0 and line.units >= fewest and line.units <= most and is_before(line, first) then
      first = line
    end
  end
  return first
end

-- Takes up to request.limit entries in the order of their scores. Returns them, the units that are
-- free for others then, and how many more could be taken.
local function take(queues, request)
  local taken, free, left = {}, request.free, request.limit
  local lines = lines_of(queues, request)
  while left > 0 do
    local best = first_line(lines, 0, free)
    local blocked = free > 0 and first_line(lines, free + 1, request.capacity)
    if blocked and (not best or is_before(blocked, best)) and reserves(blocked, request) then
      -- What needs no unit takes none away.
      free = 0
      best = first_line(lines, 0, 0)
    end
    if not best then break end
    local item = lease(best, best.heads[best.at], best.heads[best.at + 1], request)
    if item then
      taken[#taken + 1] = item
      free, left = free - best.units, left - 1
    end
    best.at = best.at + 2
    if best.at > #best.heads and left > 0 then refill(best, request.chunk) end
  end
  return taken, free, left
end
