-- Queues a dead letter again, with its old score and all its story. Its next generation is a new
-- one, so a worker of before cannot answer for it; its losses are counted anew.
--
-- ARGV[2]  name of the letter
--
-- Returns  1, or 0 if there is none
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua
--include queues/_letters.lua

local packed = redis.call('HGET', G .. 'dead:letters', ARGV[2])
if not packed then return 0 end
local letter = cmsgpack.unpack(packed)
local queue, entry, facts = letter.queue, letter.entry, letter.facts
facts[DELIVERIES], facts[LOSSES] = 0, 0
redis.call('HSET', Q .. queue .. ':m', entry, letter.payload)
requeue_message(queue, entry, facts)
drop_letter(ARGV[2])
return 1
