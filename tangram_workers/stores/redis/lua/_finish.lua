-- Shared part, put before scripts that end actions. Not a script of its own.
--
-- now()                    the server's time in seconds, microsecond resolution
-- score_of(record)         what it is ordered by while it waits, all digits
-- deliver(record, result)  pushes a result into every inbox that waits for the action
-- finish(...)              ends an action: result stored, body dropped, out of both sorted sets

local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function score_of(record)
  return string.format('%.17g', tonumber(record.submitted_s) + tonumber(record.offset))
end

local function deliver(action_key, result, ttl_s)
  local inboxes = redis.call('HGET', action_key, 'inboxes')
  for inbox in string.gmatch(inboxes or '', '%S+') do
    redis.call('RPUSH', inbox, result)
    redis.call('EXPIRE', inbox, ttl_s)
  end
end

local function finish(action_key, waiting_key, due_key, id, state, result, ttl_s)
  redis.call('ZREM', waiting_key, id)
  redis.call('ZREM', due_key, id)
  redis.call('HSET', action_key, 'state', state, 'result', result)
  redis.call('HDEL', action_key, 'body', 'holder', 'cancel')
  deliver(action_key, result, ttl_s)
  redis.call('HDEL', action_key, 'inboxes')
  redis.call('EXPIRE', action_key, ttl_s)
end

-- A result written by the store itself, for an action that no worker can answer for.
-- The leading byte is the wire version (tangram_workers/wire/codec.py).
local function own_result(id, record, outcome, message, finished_s)
  local timings = { submitted_s = tonumber(record.submitted_s), finished_s = finished_s }
  if record.started_s then timings.started_s = tonumber(record.started_s) end
  return '\1' .. cmsgpack.pack({
    action_id = id,
    outcome = outcome,
    error = message,
    timings = timings,
    attempt = tonumber(record.attempt),
    worker = record.holder or '',
    node = record.node or '',
  })
end

local function read(action_key)
  local flat = redis.call('HGETALL', action_key)
  local record = {}
  for index = 1, #flat, 2 do record[flat[index]] = flat[index + 1] end
  return record
end
