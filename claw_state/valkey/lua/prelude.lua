local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or (tonumber(clock[1]) + tonumber(clock[2]) / 1000000)
local function exact(number) return string.format('%.6f', number) end
local function of(agent) return 'claw:a:' .. agent .. ':' end
