local known = redis.call('HMGET', 'claw:t:' .. ARGV[3], 'state', 'owner', 'agent', 'request')
if known[1] ~= 'running' or known[2] ~= ARGV[4] then return 0 end
redis.call('HSET', 'claw:t:' .. ARGV[3], 'state', 'abandoned')
seen(ARGV[3], known[3], known[4])
return 1
