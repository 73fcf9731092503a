-- Lists dead letters, the newest first.
--
-- ARGV[2]  most letters
--
-- Returns  a flat list of (name, queue, deliveries, buried_s, story, payload)
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua

local reply = {}
for _, name in ipairs(redis.call('ZREVRANGE', G .. 'dead', 0, tonumber(ARGV[2]) - 1)) do
  local packed = redis.call('HGET', G .. 'dead:letters', name)
  if packed then
    local letter = cmsgpack.unpack(packed)
    for _, value in ipairs({ name, letter.queue, letter.facts[DELIVERIES], digits(letter.buried_s),
        letter.facts[STORY], letter.payload }) do
      reply[#reply + 1] = value
    end
  end
end
return reply
