-- Drops a dead letter for good.
--
-- ARGV[2]  name of the letter
--
-- Returns  1, or 0 if there is none
--include queues/_base.lua
--include queues/_queue.lua
--include queues/_message.lua
--include queues/_letters.lua

return drop_letter(ARGV[2])
