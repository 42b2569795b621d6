local a, turn = of(ARGV[2]), ARGV[3]
local t = 'claw:t:' .. turn
local known = redis.call('HMGET', t, 'state', 'owner', 'seen', 'request', 'earlier')
if known[1] ~= ARGV[4] or known[2] ~= ARGV[5] or known[3] ~= ARGV[6] then return 0 end
if known[4] and redis.call('GET', a .. 'asked:' .. known[4]) == turn then redis.call('DEL', a .. 'asked:' .. known[4]) end
if known[5] then redis.call('ZREM', a .. 'earlier:' .. known[5], turn) end
redis.call('ZREM', a .. 'turns', turn)
return redis.call('DEL', t)
