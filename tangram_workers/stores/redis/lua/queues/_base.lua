-- Shared part, put before every script of queues. Not a script of its own.
--
-- ARGV[1]  Q, prefix of every key
--
-- Key names and their life times: tangram_workers/stores/redis/keys.py. No script declares KEYS: a
-- claim cannot know before it runs which entries it takes, so a Redis Cluster is refused at start.
--
-- A holder is "<node>\31<worker>\31<random>": one process that can hold leases.

local Q = ARGV[1]
local G = Q .. '_tangram:'

-- The server's time in seconds, microsecond resolution.
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

-- A number with all its digits: Redis itself would keep 14 of them.
local function digits(number) return string.format('%.17g', number) end

-- A server that is full refuses the first write of a script, unless that write frees memory. What
-- ends or moves work must go through on a full server, so such scripts begin with this.
local function allow_when_full() redis.call('DEL', G .. 'none') end

local function node_of(holder) return string.match(holder, '^([^\31]*)') end
local function worker_of(holder) return string.match(holder, '^[^\31]*\31([^\31]*)') or holder end

-- A class says how many units an entry needs and, if it is for one node only, for which:
-- "<units>[@<node>]".
local function units_of(class) return tonumber(string.match(class, '^%d+')) end
local function bound_node(class) return string.match(class, '@(.*)$') end
