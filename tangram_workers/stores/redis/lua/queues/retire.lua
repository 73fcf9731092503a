-- A channel stops taking messages: it is woken no more, and reserves nothing.
--
-- ARGV[2]  holder, then the names of its queues
--
-- Returns  nothing
--include queues/_base.lua
--include queues/_queue.lua

allow_when_full()
for at = 3, #ARGV do unpark(ARGV[at], ARGV[2]) end
redis.call('DEL', G .. 'bell:' .. ARGV[2], G .. 'holder:' .. ARGV[2])
return false
