local turn, how, whose, when, owner = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local request, earlier, said, attempt = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local t = 'claw:t:' .. turn
local known = redis.call('HMGET', t, 'state', 'owner', 'seen', 'agent', 'earlier')
local same = known[1] == how and known[2] == whose and tonumber(known[3]) == tonumber(when)
if not same or runs(known[4], request, turn) then return 0 end
redis.call('ZREM', of(known[4]) .. 'earlier:' .. known[5], turn)
redis.call('HSET', t, 'state', 'running', 'owner', owner,
  'request', request, 'earlier', earlier, 'said', said, 'attempt', attempt)
seen(turn, known[4], request)
return 1
